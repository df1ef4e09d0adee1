"""Events that must start nothing: forged, foreign, replayed, or named by no rule."""

import json
import random
import time
from collections.abc import Callable
from typing import Any

from flows.webhook.signatures import standard_signature
from tests.integration.hostile import GITHUB, SECRET, TOKEN, Hostile, github_signature, request
from tests.webhook_events import (
    alerts,
    github_push,
    github_release,
    github_workflow_run,
    gitlab_pipeline,
    gitlab_push,
    gitlab_release,
)

GITLAB_TOKEN, ALERTMANAGER_TOKEN = "gitlab-token-of-a-test", "alertmanager-token-of-a-test"
SIGNING_KEY = b"gitlab-signing-key-of-a-test----"
HEARD = frozenset({200})
REFUSED = frozenset({401})
FOREIGN = frozenset({400})
KNOWN = frozenset({202, 503})
"""The run that there is; or Prefect took too long to say so."""


def pipeline(**changed: Any) -> dict[str, Any]:
    """The pipeline that the guide's rule starts a study for."""
    content = gitlab_pipeline()
    content["object_attributes"] |= {"source": "schedule", **changed}
    return content


def firing(**changed: Any) -> dict[str, Any]:
    """The alert that the guide's rule starts a study for."""
    content = alerts(name="KubeVirtUpgraded")
    content["alerts"][0]["labels"]["virtscale"] = "study"
    return {**content, **changed}


def gitlab(content: Any, key: str, token: str = GITLAB_TOKEN) -> bytes:
    """A delivery of GitLab."""
    headers = [f"X-Gitlab-Token: {token}", f"Idempotency-Key: {key}", "X-Gitlab-Event: Any Hook"]
    return request(json.dumps(content).encode(), headers, "/events/gitlab")


def gitlab_signed(content: Any, signed: Any, key: str, off_s: int = 0, secret: bytes = SIGNING_KEY) -> bytes:
    """A delivery of GitLab, signed for `signed`."""
    stamp = int(time.time()) + off_s
    signature = standard_signature(secret, f"{key}.{stamp}.{json.dumps(signed)}".encode())
    headers = [f"webhook-id: {key}", f"webhook-timestamp: {stamp}", f"webhook-signature: v1,{signature}"]
    return request(json.dumps(content).encode(), headers, "/events/gitlab")


def github(content: Any, event: str, path: str = "/events/github", secret: str = GITHUB) -> bytes:
    """A delivery of GitHub."""
    body = json.dumps(content).encode()
    signature = github_signature(body, secret)
    headers = [f"X-Hub-Signature-256: {signature}", f"X-GitHub-Event: {event}", "X-GitHub-Delivery: x"]
    return request(body, headers, path)


def alertmanager(content: Any, token: str = ALERTMANAGER_TOKEN) -> bytes:
    """A delivery of Alertmanager."""
    body = json.dumps(content).encode()
    return request(body, [f"Authorization: Bearer {token}"], "/events/alertmanager")


ORIGINALS = (
    gitlab(pipeline(), "original"),
    github(github_release(), "release"),
    alertmanager(firing()),
)
"""These start a run each; whatever repeats them must not."""


def replayed(draw: random.Random) -> Hostile:
    again = draw.choice(
        (
            *ORIGINALS,
            gitlab(pipeline(id=draw.randrange(10**6)), "original"),
            gitlab_signed(pipeline(), pipeline(), "original"),
            alertmanager(firing(externalURL=f"http://{draw.random()}", truncatedAlerts=1)),
            alertmanager(firing(alerts=[*firing()["alerts"], later(draw)])),
        )
    )
    return Hostile("replayed event", again, KNOWN)


def later(draw: random.Random) -> dict[str, Any]:
    """An alert that joins the group of the original."""
    one: dict[str, Any] = firing()["alerts"][0]
    return {**one, "startsAt": f"2026-12-0{draw.randrange(2, 9)}T10:00:00+01:00"}


def without_token(draw: random.Random) -> Hostile:
    body = json.dumps(draw.choice((pipeline(), firing(), github_release()))).encode()
    path = draw.choice(("/events/gitlab", "/events/alertmanager", "/events/github"))
    headers = draw.choice(([], [f"Idempotency-Key: {draw.random()}"], ["X-GitHub-Event: release"]))
    return Hostile("event without token", request(body, headers, path), REFUSED)


def with_another_s_token(draw: random.Random) -> Hostile:
    known = (SECRET, GITHUB, TOKEN, GITLAB_TOKEN, ALERTMANAGER_TOKEN)
    wrong = draw.choice((*known, GITLAB_TOKEN[:-1], ALERTMANAGER_TOKEN + "x", "", "\u00e9" * 20))
    sent = {
        GITLAB_TOKEN: gitlab(pipeline(), str(draw.random()), wrong),
        ALERTMANAGER_TOKEN: alertmanager(firing(), wrong),
        GITHUB: github(github_release(f"v{draw.randrange(100)}"), "release", secret=wrong),
    }
    right = draw.choice([each for each in sent if each != wrong])
    return Hostile("event with a wrong token", sent[right], REFUSED)


def wrongly_signed(draw: random.Random) -> Hostile:
    """As GitLab signs, but old, with another key, or for another body."""
    key = str(draw.random())
    off_s = draw.choice((-1, 1)) * draw.randrange(310, 10**8)
    content = draw.choice(
        (
            gitlab_signed(pipeline(), pipeline(), key, off_s),
            gitlab_signed(pipeline(), pipeline(), key, secret=draw.choice((b"", GITLAB_TOKEN.encode()))),
            gitlab_signed(pipeline(), pipeline(status="failed"), key),
            gitlab_signed(pipeline(), pipeline(), key).replace(key.encode(), key.encode() + b"1"),
            gitlab_signed(pipeline(), pipeline(), key).replace(b"v1,", draw.choice((b"v1", b"v2,", b"v1,,"))),
        )
    )
    return Hostile("event wrongly signed", content, REFUSED)


def with_two_proofs(draw: random.Random) -> Hostile:
    body = json.dumps(pipeline()).encode()
    token = f"X-Gitlab-Token: {GITLAB_TOKEN}"
    more = draw.choice(
        (token, f"Authorization: Bearer {ALERTMANAGER_TOKEN}", f"Authorization: Bearer {TOKEN}")
    )
    headers = [token, more, f"Idempotency-Key: {draw.random()}"]
    path = draw.choice(("/events/gitlab", "/events/alertmanager"))
    return Hostile("event with two proofs", request(body, headers, path), REFUSED)


def foreign(draw: random.Random) -> Hostile:
    """Genuine by its token, but not what its sender sends."""
    no_event: Any = draw.choice(
        (
            {},
            [],
            {"parameters": {"profile": "smoke"}},
            {"object_kind": {"$ne": 1}},
            {"object_kind": "pipeline", "project": {"path_with_namespace": "x"}},
            {"object_kind": "pipeline", "object_attributes": [1] * 1000},
        )
    )
    content = draw.choice(
        (
            gitlab(no_event, str(draw.random())),
            gitlab(firing(), str(draw.random())),
            alertmanager(no_event),
            alertmanager(pipeline()),
            alertmanager(firing(version="5")),
            alertmanager(firing(groupKey=draw.choice((None, "", 1, {})))),
            alertmanager(firing(alerts=draw.choice((None, [1], {}, [{"status": "firing"}])))),
            gitlab(pipeline(), draw.choice(("", "../x", "a b", "x" * 129))),
        )
    )
    return Hostile("foreign event", content, FOREIGN)


def relabelled(draw: random.Random) -> Hostile:
    """Signed by GitHub, and sent again as another event: no header is signed."""
    content = draw.choice((github_push(), github_workflow_run()))
    path, event = draw.choice(
        (("/events/github", "release"), ("/hooks/study", "repository_dispatch"), ("/hooks/study", "push"))
    )
    return Hostile("relabelled event", github(content, event, path), FOREIGN)


def named_by_no_rule(draw: random.Random) -> Hostile:
    """Its fields are nearly those of a rule, or it brings parameters of its own."""
    key = str(draw.random())
    ref = draw.choice(("*", "main\n", "main\u0000", "MAIN", "mai", "m\u0430in", "refs/heads/main", "../main"))
    content = draw.choice(
        (
            gitlab(pipeline(ref=ref), key),
            gitlab(pipeline(status=draw.choice(("failed", "running", "success ", "[s]uccess"))), key),
            gitlab(pipeline(source="web"), key),
            gitlab({"object_kind": draw.choice(("note", "x" * 5000, "firing", "__class__"))}, key),
            gitlab(gitlab_release(), key),
            gitlab(gitlab_push(sha="0" * 40), key),
            github(github_release(action=draw.choice(("deleted", "created", "edited"))), "release"),
            github(github_release(tag=draw.choice(("nightly", "v", "V1"))), "release"),
            github(github_release(), draw.choice(("issues", "x" * 5000, "Release"))),
            github(github_push(sha="0" * 40), "push"),
            alertmanager(alerts(name="KubeVirtUpgraded")),
            alertmanager(firing(status="resolved")),
            alertmanager(firing(alerts=[])),
            alertmanager({**firing(), "commonLabels": {}, "alerts": alerts()["alerts"]}),
        )
    )
    return Hostile("event of no rule", content, HEARD | FOREIGN)


def large_event(draw: random.Random) -> Hostile:
    headers = [f"X-Gitlab-Token: {GITLAB_TOKEN}", f"Idempotency-Key: {draw.random()}"]
    size = draw.choice((1024 * 1024 + 1, 30 * 1024 * 1024))
    return Hostile("large event", request(b"", headers, "/events/gitlab", length=size), frozenset({413}))


def event_path(draw: random.Random) -> Hostile:
    headers = [f"X-Gitlab-Token: {GITLAB_TOKEN}", f"Idempotency-Key: {draw.random()}"]
    path = draw.choice(
        ("/events/", "/events/GitLab", "/events/gitlab/", "/events/gitlab%00", "/events/gitlab-main")
    )
    body = json.dumps(pipeline()).encode()
    return Hostile("event path", request(body, headers, path), frozenset({307, 404}))


EVENTS: tuple[Callable[[random.Random], Hostile], ...] = (
    replayed,
    without_token,
    with_another_s_token,
    wrongly_signed,
    with_two_proofs,
    foreign,
    relabelled,
    named_by_no_rule,
    large_event,
    event_path,
)
