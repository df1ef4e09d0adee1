"""Who sent a request: three forms, each with its own secret."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from flows.webhook.pace import Buckets, Pace, Proofs
from flows.webhook.signatures import WINDOW_S, Headers, Refused, Secrets, Sender, sender_of, sign

SECRETS = Secrets(("a-signing-secret", "its-successor-xx"), ("a-github-secret-",), ("a-bearer-token--",))
NOW_S = 1_700_000_000
BODY = b'{"parameters": {}}'


def headers(**fields: str) -> Headers:
    return Headers([(name.replace("_", "-").encode(), value.encode()) for name, value in fields.items()])


def signed(body: bytes = BODY, at_s: int = NOW_S, secret: str = "a-signing-secret") -> Headers:
    signature = sign(secret, f"{at_s}.".encode() + body)
    return headers(
        X_Virtscale_Timestamp=str(at_s),
        X_Virtscale_Signature=f"sha256={signature}",
        X_Virtscale_Delivery="one",
    )


@pytest.mark.parametrize("secret", SECRETS.signing)
def test_each_secret_of_a_change_over_is_good(secret: str) -> None:
    sender = sender_of(signed(secret=secret), BODY, SECRETS, NOW_S)
    assert (sender.form, sender.delivery) == ("signed", "one")


@pytest.mark.parametrize("off_s", [-WINDOW_S, WINDOW_S])
def test_the_window_is_five_minutes_both_ways(off_s: int) -> None:
    assert sender_of(signed(at_s=NOW_S + off_s), BODY, SECRETS, NOW_S)
    with pytest.raises(Refused, match="outside of the window"):
        sender_of(signed(at_s=NOW_S + off_s + (1 if off_s > 0 else -1)), BODY, SECRETS, NOW_S)


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_a_signature_is_good_for_its_own_body_only(body: bytes, other: bytes) -> None:
    assert sender_of(signed(body), body, SECRETS, NOW_S)
    if other != body:
        with pytest.raises(Refused, match="wrong signature"):
            sender_of(signed(body), other, SECRETS, NOW_S)


@pytest.mark.parametrize("secret", ["a-github-secret-", "a-bearer-token--", ""])
def test_a_secret_of_another_form_is_no_good(secret: str) -> None:
    with pytest.raises(Refused, match="wrong signature"):
        sender_of(signed(secret=secret), BODY, SECRETS, NOW_S)


def test_a_form_without_a_secret_is_closed() -> None:
    closed = Secrets(tokens=("a-bearer-token--",))
    with pytest.raises(Refused):
        sender_of(signed(secret=""), BODY, closed, NOW_S)
    with pytest.raises(Refused):
        sender_of(headers(Authorization="Bearer "), BODY, Secrets(), NOW_S)


def test_github_s_body_is_its_delivery() -> None:
    given = headers(
        X_Hub_Signature_256="sha256=" + sign("a-github-secret-", BODY),
        X_GitHub_Delivery="x",
        X_GitHub_Event="push",
    )
    sender = sender_of(given, BODY, SECRETS, NOW_S)
    assert (sender.form, sender.event, len(sender.delivery)) == ("github", "push", 64)


def test_a_token_is_enough_with_a_delivery_id() -> None:
    given = headers(Authorization="Bearer a-bearer-token--", X_Virtscale_Delivery="two")
    assert sender_of(given, BODY, SECRETS, NOW_S) == Sender("bearer", "two")


def test_two_forms_or_two_signatures_prove_nothing() -> None:
    fields = [(b"X-Virtscale-Signature", b"sha256=0"), (b"Authorization", b"Bearer a-bearer-token--")]
    with pytest.raises(Refused, match="more than one"):
        sender_of(Headers(fields), BODY, SECRETS, NOW_S)
    with pytest.raises(Refused, match="2 times"):
        sender_of(Headers([fields[1], fields[1]]), BODY, SECRETS, NOW_S)


def test_secrets_are_not_shown() -> None:
    assert "a-" not in repr(SECRETS)


def test_a_bucket_fills_again() -> None:
    buckets = Buckets(Pace(2.0, 3))
    assert [buckets.wait_s("a", 0.0) for _ in range(4)] == [0.0, 0.0, 0.0, 0.5]
    assert buckets.wait_s("b", 0.0) == 0.0
    assert buckets.wait_s("a", 0.5) == 0.0


def test_looking_at_a_bucket_takes_nothing() -> None:
    buckets = Buckets(Pace(1.0, 1))
    assert [buckets.wait_s("a", 0.0, cost=0.0) for _ in range(5)] == [0.0] * 5
    buckets.wait_s("a", 0.0)
    assert buckets.wait_s("a", 0.0, cost=0.0) == 1.0


def test_a_proof_belongs_to_its_first_delivery_while_it_is_fresh() -> None:
    proofs = Proofs(600.0)
    assert [proofs.is_replayed("p", each, 0.0) for each in ("one", "one", "two")] == [False, False, True]
    assert not proofs.is_replayed("p", "two", 601.0)
