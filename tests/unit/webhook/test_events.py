"""What senders' own events say, and which start something: the application without a Prefect."""

import asyncio
import json
import re
import tomllib
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import pytest
from starlette.applications import Starlette

from flows.forms import FORMS
from flows.webhook.app import application
from flows.webhook.events import KINDS, Foreign, event_of
from flows.webhook.rules import FILE, Rules, complete, load_rules
from flows.webhook.signatures import Secrets, sign
from flows.webhook.starting import Order, Started
from infra.errors import ProfileError
from tests.webhook_events import (
    SHA,
    alerts,
    github_deployment_status,
    github_push,
    github_release,
    github_workflow_run,
    gitlab_pipeline,
    gitlab_push,
    gitlab_release,
)

SECRETS = Secrets(
    tokens=("a-bearer-token--",),
    github=("a-github-secret-",),
    gitlab=("a-gitlab-token--", "its-successor-xx"),
    alertmanager=("an-alert-token--",),
)
RULES = Rules.model_validate(
    {
        "hooks": {"study": {"deployment": "study/x", "parameters": {"seed": True}}},
        "events": {
            "main": {
                "sender": "gitlab",
                "event": "pipeline",
                "match": {"ref": ["main", "release-*"], "status": "success"},
                "deployment": "study/x",
                "fixed": {"profile": "small"},
                "take": {"run_id": "sha"},
            },
            "release": {
                "sender": "github",
                "event": "release",
                "match": {"action": "published", "tag": "v[0-9]*"},
                "deployment": "study/x",
            },
            "upgraded": {
                "sender": "alertmanager",
                "event": "firing",
                "match": {"alertname": "Upgraded", "labels.team": "virt"},
                "deployment": "boot storm/x",
            },
        },
    }
)


class Memory:
    """A starter that keeps its orders; one run per key, as Prefect has it."""

    def __init__(self) -> None:
        self.orders: dict[str, Order] = {}

    async def check(self, order: Order) -> dict[str, Any]:
        return order.fields

    async def start(self, order: Order) -> Started:
        self.orders.setdefault(order.key, order)
        return Started(order.key, "name", "url")

    async def is_ready(self) -> bool:
        return True


class Receiver(NamedTuple):
    """The application, and what it started."""

    application: Starlette
    memory: Memory

    def send(self, path: str, content: Any, **headers: str) -> tuple[int, dict[str, Any]]:
        body = content if isinstance(content, bytes) else json.dumps(content).encode()
        return asyncio.run(self._sent(path, body, {n.replace("_", "-"): v for n, v in headers.items()}))

    async def _sent(self, path: str, body: bytes, headers: dict[str, str]) -> tuple[int, dict[str, Any]]:
        app = self.application
        async with (
            app.router.lifespan_context(app),
            httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://x") as client,
        ):
            answer = await client.post(path, content=body, headers=headers)
            return answer.status_code, answer.json()

    def gitlab(self, content: Any, key: str = "one") -> tuple[int, dict[str, Any]]:
        return self.send("/events/gitlab", content, X_Gitlab_Token="a-gitlab-token--", Idempotency_Key=key)

    def github(self, content: Any, event: str, path: str = "/events/github") -> tuple[int, dict[str, Any]]:
        body = json.dumps(content).encode()
        signature = "sha256=" + sign("a-github-secret-", body)
        return self.send(
            path, body, X_Hub_Signature_256=signature, X_GitHub_Event=event, X_GitHub_Delivery="x"
        )

    def alertmanager(self, content: Any) -> tuple[int, dict[str, Any]]:
        return self.send("/events/alertmanager", content, Authorization="Bearer an-alert-token--")


def receiving(rules: Rules = RULES, secrets: Secrets = SECRETS) -> Receiver:
    memory = Memory()

    @asynccontextmanager
    async def opened() -> AsyncIterator[Memory]:
        yield memory

    return Receiver(application(rules, secrets, opened), memory)


@pytest.fixture
def receiver() -> Receiver:
    return receiving()


def started(receiver: Receiver) -> list[tuple[str, dict[str, Any]]]:
    return [(order.deployment, order.fields) for order in receiver.memory.orders.values()]


def test_a_pipeline_that_a_rule_names_starts_its_run_with_what_the_rule_says(receiver: Receiver) -> None:
    sha = "0" * 39 + "1"
    status, _ = receiver.gitlab(gitlab_pipeline(ref="release-1.7", sha=sha))
    assert status == 202
    assert started(receiver) == [("study/x", {"profile": "small", "run_id": sha})]
    assert next(iter(receiver.memory.orders.values())).tags == ("webhook", "event:main")


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (gitlab_pipeline(status="failed"), "rule main: status is failed, not success"),
        (gitlab_pipeline(ref="feature"), "rule main: ref is feature, not main or release-*"),
        (gitlab_pipeline(sha=None), "rule main: no sha, which is a parameter"),
        (gitlab_push(), "no rule for gitlab's push (rules are for: pipeline)"),
        ({"object_kind": "wiki_page"}, "no rule for gitlab's wiki_page (rules are for: pipeline)"),
    ],
)
def test_an_event_that_no_rule_names_starts_nothing_and_hears_why(
    receiver: Receiver, content: Any, says: str
) -> None:
    assert receiver.gitlab(content) == (200, {"started": False, "reason": says})
    assert started(receiver) == []


def test_a_repeated_key_of_gitlab_is_one_run_and_another_key_another(receiver: Receiver) -> None:
    answers = [receiver.gitlab(gitlab_pipeline(), key) for key in ("one", "one", "two")]
    assert [answer["run_id"] for _, answer in answers] == [
        "webhook:events/main:gitlab:one",
        "webhook:events/main:gitlab:one",
        "webhook:events/main:gitlab:two",
    ]


def test_gitlab_before_its_key_is_told_by_event_id_and_body(receiver: Receiver) -> None:
    """One push gives several events one id there."""
    for sha in ("a" * 40, "b" * 40, "a" * 40):
        content = gitlab_pipeline(sha=sha)
        headers = {"X-Gitlab-Token": "its-successor-xx", "X-Gitlab-Event-UUID": "e"}
        assert receiver.send("/events/gitlab", content, **headers)[0] == 202
    assert len(receiver.memory.orders) == 2
    status, answer = receiver.send("/events/gitlab", gitlab_pipeline(), X_Gitlab_Token="a-gitlab-token--")
    assert (status, answer["error"][:15]) == (400, "Idempotency-Key")


@pytest.mark.parametrize(
    ("path", "headers"),
    [
        ("/events/gitlab", {}),
        ("/events/gitlab", {"X-Gitlab-Token": "an-alert-token--"}),
        ("/events/gitlab", {"X-Gitlab-Token": ""}),
        (
            "/events/gitlab",
            {"X-Gitlab-Token": "a-gitlab-token--", "Authorization": "Bearer a-bearer-token--"},
        ),
        ("/events/gitlab", {"Authorization": "Bearer a-gitlab-token--"}),
        ("/events/alertmanager", {}),
        ("/events/alertmanager", {"Authorization": "Bearer a-bearer-token--"}),
        ("/events/alertmanager", {"Authorization": "Basic an-alert-token--"}),
        ("/events/alertmanager", {"X-Gitlab-Token": "a-gitlab-token--"}),
        ("/events/github", {"Authorization": "Bearer a-bearer-token--"}),
        ("/events/github", {"X-Hub-Signature-256": "sha256=" + "0" * 64}),
        ("/hooks/study", {"X-Gitlab-Token": "a-gitlab-token--"}),
        ("/hooks/study", {"Authorization": "Bearer an-alert-token--"}),
    ],
)
def test_only_its_own_secret_opens_a_sender_s_address(
    receiver: Receiver, path: str, headers: dict[str, str]
) -> None:
    content = alerts() if path.endswith("alertmanager") else gitlab_pipeline()
    assert receiver.send(path, content, **headers) == (401, {"error": "not authenticated"})
    assert started(receiver) == []


def test_an_address_without_a_secret_is_closed() -> None:
    closed = receiving(secrets=Secrets(tokens=("a-bearer-token--",)))
    assert closed.send("/events/gitlab", gitlab_pipeline(), X_Gitlab_Token="")[0] == 401
    assert closed.send("/events/alertmanager", alerts(), Authorization="Bearer ")[0] == 401


def test_repeats_of_an_alert_are_one_run_until_it_starts_anew(receiver: Receiver) -> None:
    first = alerts(starts=("2026-12-01T10:00:00.123456789Z",))
    joined = alerts(starts=("2026-12-01T11:00:00Z", "2026-12-01T11:00:00.123456789+01:00"))
    anew = alerts(starts=("2026-12-02T10:00:00Z",))
    assert [receiver.alertmanager(each)[0] for each in (first, first, joined, anew)] == [202] * 4
    assert len(receiver.memory.orders) == 2
    assert started(receiver)[0] == ("boot storm/x", {})


def test_a_resolved_alert_starts_nothing(receiver: Receiver) -> None:
    heard = (200, {"started": False, "reason": "the alerts are resolved"})
    assert receiver.alertmanager(alerts(status="resolved")) == heard
    assert receiver.alertmanager(alerts() | {"status": "resolved"}) == heard
    assert receiver.alertmanager(alerts() | {"alerts": []}) == heard
    assert started(receiver) == []


def test_what_resolved_alerts_say_does_not_count() -> None:
    content = alerts()
    content["alerts"].append({"status": "resolved", "labels": {}, "startsAt": "2020-01-01T00:00:00Z"})
    assert event_of("alertmanager", "", content) == event_of("alertmanager", "", alerts())


def test_a_label_that_alerts_do_not_share_is_no_field() -> None:
    content = alerts(starts=("2026-12-01T10:00:00Z",) * 2)
    content["alerts"][1]["labels"]["team"] = "storage"
    fields = event_of("alertmanager", "", content).fields
    assert "labels.team" not in fields
    assert (fields["receiver"], fields["alertname"], fields["labels.seed"]) == ("virtscale", "Upgraded", "9")


def test_a_release_of_github_starts_one_run_per_body(receiver: Receiver) -> None:
    for tag in ("v1.7.0", "v1.7.0", "v1.7.1"):
        assert receiver.github(github_release(tag), "release")[0] == 202
    assert len(receiver.memory.orders) == 2
    assert receiver.github(github_release("nightly"), "release")[1]["reason"] == (
        "rule release: tag is nightly, not v[0-9]*"
    )
    assert receiver.github({"zen": "x"}, "ping") == (200, {"pong": True})


def test_a_signed_body_under_another_unsigned_event_starts_nothing(receiver: Receiver) -> None:
    status, answer = receiver.github(github_push(), "release")
    assert (status, answer["error"]) == (400, "action: missing, so this is no release event")
    status, answer = receiver.github(github_push(), "repository_dispatch", "/hooks/study")
    assert (status, answer["error"][:23]) == (400, "action, client_payload:")
    status, answer = receiver.github(github_release(), "repository_dispatch", "/hooks/study")
    assert (status, answer["error"][:23]) == (400, "action, client_payload:")
    status, answer = receiver.github(github_push(), "push", "/hooks/study")
    assert (status, answer["error"][:30]) == (400, "push: a hook takes repository_")
    assert started(receiver) == []


def test_a_dispatch_starts_its_hook(receiver: Receiver) -> None:
    content = {"action": "nightly", "client_payload": {"seed": 3}}
    assert receiver.github(content, "repository_dispatch", "/hooks/study")[0] == 202
    assert started(receiver) == [("study/x", {"seed": 3})]


@pytest.mark.parametrize(
    ("sender", "kind", "content"),
    [
        ("gitlab", "", gitlab_push(sha="0" * 40)),
        ("github", "push", github_push(sha="0" * 40)),
    ],
)
def test_what_deletes_a_ref_starts_nothing(sender: Any, kind: str, content: Any) -> None:
    assert event_of(sender, kind, content).idle == "refs/heads/main was deleted"


@pytest.mark.parametrize(
    ("path", "content", "says"),
    [
        ("gitlab", {}, "object_kind: missing"),
        ("gitlab", {"object_kind": ["push"]}, "object_kind: missing"),
        ("gitlab", {"object_kind": "pipeline", "project": 1}, "project.path_with_namespace: missing"),
        ("gitlab", b"[]", "body: not a JSON object"),
        ("gitlab", b'{"object_kind": "push", "object_kind": "pipeline"}', "a key is there twice"),
        ("gitlab", alerts(), "object_kind: missing"),
        ("alertmanager", gitlab_push(), "version: Field required"),
        ("alertmanager", alerts() | {"version": "3"}, "version: Input should be '4'"),
        ("alertmanager", alerts() | {"groupKey": ""}, "groupKey: String should have at least 1"),
        ("alertmanager", alerts(starts=("yesterday",)), "alerts.0.startsAt: Input should be a valid"),
        (
            "alertmanager",
            alerts(starts=("2026-12-01T10:00:00",)),
            "alerts.0.startsAt: Input should have timezone",
        ),
    ],
)
def test_a_foreign_body_is_refused_with_its_path(
    receiver: Receiver, path: str, content: Any, says: str
) -> None:
    status, answer = receiver.gitlab(content) if path == "gitlab" else receiver.alertmanager(content)
    assert status == 400
    assert says in answer["error"]
    assert started(receiver) == []


@pytest.mark.parametrize(
    ("sender", "kind", "content", "fields"),
    [
        ("gitlab", "tag_push", gitlab_push(kind="tag_push", ref="refs/tags/v1"),
         {"ref": "refs/tags/v1", "sha": SHA}),
        ("gitlab", "release", gitlab_release(), {"tag": "v1.7.0", "action": "create", "id": 1}),
        ("gitlab", "pipeline", gitlab_pipeline(),
         {"ref": "main", "status": "success", "source": "push", "sha": SHA, "id": 31}),
        ("github", "push", github_push(), {"ref": "refs/heads/main", "sha": SHA}),
        ("github", "workflow_run", github_workflow_run(),
         {"action": "completed", "workflow": "Build", "status": "success", "ref": "main", "sha": SHA,
          "id": 30433642}),
        ("github", "workflow_run", github_workflow_run(None),
         {"action": "requested", "workflow": "Build", "ref": "main", "sha": SHA, "id": 30433642}),
        ("github", "deployment_status", github_deployment_status(),
         {"status": "success", "environment": "production", "ref": "main", "sha": SHA, "id": 42}),
    ],
)  # fmt: skip
def test_an_event_says_these_fields_and_no_more(
    sender: Any, kind: str, content: Any, fields: dict[str, Any]
) -> None:
    event = event_of(sender, kind, content)
    assert event.kind == kind
    assert event.fields == {"project": "platform/kubevirt", **fields}


@pytest.mark.parametrize(
    "value", ["", "x" * 256, "a\nb", "a\0b", "\ud800", True, 1.5, None, ["main"], {}, 2**70]
)
def test_only_short_text_and_whole_numbers_are_fields(value: Any) -> None:
    with pytest.raises(Foreign, match=r"object_attributes\.ref: missing"):
        event_of("gitlab", "", gitlab_pipeline(ref=value))


def test_a_dry_run_of_a_rule_starts_nothing() -> None:
    dry = RULES.events["main"].model_copy(update={"dry_run": True})
    receiver = receiving(RULES.model_copy(update={"events": {"main": dry}}))
    status, answer = receiver.gitlab(gitlab_pipeline())
    assert (status, answer["dry_run"], started(receiver)) == (200, True, [])


def test_the_rules_that_are_shipped_are_those_of_real_forms() -> None:
    shipped = load_rules(FILE)
    assert {rule.sender for rule in shipped.events.values()} == set(KINDS)
    for rule in shipped.events.values():
        flow = rule.deployment.partition("/")[0]
        assert set(rule.take) <= set(FORMS[flow].model_fields)
        assert complete(flow, rule.fixed) == rule.fixed
        assert rule.match


def test_the_rules_that_the_guide_shows_are_shipped() -> None:
    guide = (FILE.parents[1] / "docs" / "guides" / "webhooks.md").read_text()
    shown = tomllib.loads("".join(re.findall(r"^```toml\n(.*?)^```$", guide, re.MULTILINE | re.DOTALL)))
    assert shown["events"] == tomllib.loads(FILE.read_text())["events"]


def test_the_guide_names_the_fields_of_each_event() -> None:
    guide = (FILE.parents[1] / "docs" / "guides" / "webhooks.md").read_text()
    rows = {
        kind: set(re.findall(r"`(\w+)`", fields))
        for events, fields in re.findall(r"^\|[^|]*\|([^|]*)\|(.*)\|$", guide, re.MULTILINE)
        for kind in re.findall(r"`(\w+)`", events)
    }
    for kinds in KINDS.values():
        for name, kind in kinds.items():
            assert rows[name] - {"main"} >= set(kind.needs) | set(kind.may), name


@pytest.mark.parametrize(
    ("lines", "says"),
    [
        ('event = "push"\nmatch = {reff = "x"}', "gitlab's push has no field reff (project, ref, sha)"),
        ('event = "push"\ntake = {seed = "id"}', "gitlab's push has no field id"),
        ('event = "merge"', "event: gitlab has push, tag_push, release, pipeline, not merge"),
        ('event = "push"\nfixed = {run_id = "x"}\ntake = {run_id = "sha"}', "run_id is fixed and taken"),
        ('event = "push"\nparameters = {}', "events.x.parameters: Extra inputs"),
    ],
)
def test_a_wrong_rule_is_one_line(tmp_path: Path, lines: str, says: str) -> None:
    path = tmp_path / "rules.toml"
    path.write_text(f'[hooks]\n[events.x]\nsender = "gitlab"\ndeployment = "study/x"\n{lines}\n')
    with pytest.raises(ProfileError) as refused:
        load_rules(path)
    assert says in str(refused.value)
    assert "\n" not in str(refused.value)
