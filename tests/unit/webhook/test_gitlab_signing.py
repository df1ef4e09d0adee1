"""GitLab's signed form: whose request it is, and which delivery."""

import base64

import pytest

from flows.cli.serve import known_secrets
from flows.webhook.signatures import (
    WINDOW_S,
    Headers,
    Refused,
    Secrets,
    Sender,
    event_sender_of,
    standard_key,
    standard_signature,
)
from infra.errors import ProfileError

KEY, OLDER = b"a-signing-key-of-32-bytes-------", b"its-predecessor-of-32-bytes-----"
SECRETS = Secrets(gitlab=("a-gitlab-token--",), gitlab_keys=(KEY, OLDER), alertmanager=("an-alert-token--",))
NOW_S = 1_700_000_000
BODY = b'{"object_kind": "pipeline"}'
TOKEN = f"whsec_{base64.b64encode(KEY).decode()}"


def signed(at_s: int = NOW_S, key: bytes = KEY, delivery: str = "one") -> dict[str, str]:
    signature = standard_signature(key, f"{delivery}.{at_s}.".encode() + BODY)
    return {
        "webhook-id": delivery,
        "webhook-timestamp": str(at_s),
        "webhook-signature": f"v1,{signature}",
        "Idempotency-Key": delivery,
    }


def sender(fields: dict[str, str], body: bytes = BODY, secrets: Secrets = SECRETS) -> Sender:
    headers = Headers([(name.encode(), value.encode()) for name, value in fields.items()])
    return event_sender_of("gitlab", headers, body, secrets, NOW_S)


@pytest.mark.parametrize("fields", [{}, {"X-Gitlab-Token": "a-gitlab-token--"}, {"X-Gitlab-Token": "other"}])
def test_the_signed_id_is_the_delivery_whatever_token_is_beside_it(fields: dict[str, str]) -> None:
    assert sender(signed() | fields) == Sender("gitlab", "one")
    assert sender(signed() | fields | {"Idempotency-Key": "two"}) == Sender("gitlab", "one")


def test_the_signature_is_that_of_the_published_form() -> None:
    """The example of standardwebhooks.com's own libraries."""
    key = standard_key("whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw")
    content = b'msg_p5jXN8AQM9LWM0D4loKWxJek.1614265330.{"test": 2432232314}'
    assert standard_signature(key, content) == "g0hM9SsE+OTPJTGt/tmIKtSyZlE3uFJELVlNIOLJ1OE="


def test_one_good_signature_of_several_is_enough_while_keys_change() -> None:
    fields = signed(key=OLDER)
    fields["webhook-signature"] = f"v1,{standard_signature(b'x' * 32, b'')} {fields['webhook-signature']}"
    assert sender(fields).delivery == "one"


@pytest.mark.parametrize(
    ("changed", "says"),
    [
        ({"webhook-id": "two"}, "wrong signature"),
        ({"webhook-timestamp": str(NOW_S + 1)}, "wrong signature"),
        ({"webhook-timestamp": ""}, "no timestamp"),
        ({"webhook-timestamp": "1e9"}, "no timestamp"),
        ({"webhook-signature": ""}, "wrong signature"),
        ({"webhook-signature": "v1,"}, "wrong signature"),
        ({"webhook-signature": "", "X-Gitlab-Token": "a-gitlab-token--"}, "wrong signature"),
        ({"webhook-signature": signed()["webhook-signature"].replace("v1,", "v2,")}, "wrong signature"),
        ({"Authorization": "Bearer an-alert-token--"}, "no other form of signature"),
        (signed(key=b"k" * 32), "wrong signature"),
        (signed(at_s=NOW_S - WINDOW_S - 1), "outside of the window"),
        (signed(at_s=NOW_S + WINDOW_S + 1), "outside of the window"),
    ],
)
def test_a_signature_is_good_for_its_own_id_and_time(changed: dict[str, str], says: str) -> None:
    with pytest.raises(Refused, match=says):
        sender(signed() | changed)


def test_a_signature_is_good_for_its_own_body_only() -> None:
    with pytest.raises(Refused, match="wrong signature"):
        sender(signed(), BODY.replace(b"pipe", b"pope"))


def test_the_form_is_closed_without_a_signing_token() -> None:
    with pytest.raises(Refused, match="wrong signature"):
        sender(signed(key=b""), secrets=Secrets(gitlab=SECRETS.gitlab))


def test_a_signing_token_is_what_gitlab_makes(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VIRTSCALE_WEBHOOK_GITLAB_SIGNING_TOKEN", TOKEN)
    known = known_secrets()
    assert known.gitlab_keys == (KEY,)
    assert "signing-key" not in repr(known)
    for wrong in ("whsec_MfKQ9r8GKYqr", "whsec_" + "!" * 44, "a-plain-secret-of-mine", TOKEN[6:]):
        monkeypatch.setenv("VIRTSCALE_WEBHOOK_GITLAB_SIGNING_TOKEN", wrong)
        with pytest.raises(ProfileError, match="GITLAB_SIGNING_TOKEN: a signing token is whsec_ and base64"):
            known_secrets()
