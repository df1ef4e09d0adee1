"""PURE. What a sender's own event says: its kind, a few named fields, and which delivery it is.

Only the fields that are named here are looked at, and only short texts and whole numbers among them: nothing
else of an event can decide what is started, or with what.
"""

import hashlib
from datetime import UTC, datetime
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

from pydantic import AwareDatetime, BaseModel, Field

LABEL = "labels."
"""A field of Alertmanager's events that is named so is a label that all firing alerts share."""
LONGEST_FIELD = 255

SenderName = Literal["github", "gitlab", "alertmanager"]
Value: TypeAlias = str | int
Paths: TypeAlias = dict[str, tuple[str, ...]]


class Kind(NamedTuple):
    """Where an event's fields are in its body; one without those it `needs` is no event of that kind."""

    needs: Paths
    may: Paths


_GITHUB: Paths = {"project": ("repository", "full_name")}
_GITLAB: Paths = {"project": ("project", "path_with_namespace")}
_PUSH: Paths = {"ref": ("ref",), "sha": ("after",)}

KINDS: dict[SenderName, dict[str, Kind]] = {
    "github": {
        "push": Kind(_GITHUB | _PUSH, {}),
        "release": Kind(
            _GITHUB | {"action": ("action",), "tag": ("release", "tag_name")}, {"id": ("release", "id")}
        ),
        "workflow_run": Kind(
            _GITHUB | {"action": ("action",), "workflow": ("workflow_run", "name")},
            {
                "status": ("workflow_run", "conclusion"),
                "ref": ("workflow_run", "head_branch"),
                "sha": ("workflow_run", "head_sha"),
                "id": ("workflow_run", "id"),
            },
        ),
        "deployment_status": Kind(
            _GITHUB | {"status": ("deployment_status", "state")},
            {
                "environment": ("deployment", "environment"),
                "ref": ("deployment", "ref"),
                "sha": ("deployment", "sha"),
                "id": ("deployment", "id"),
            },
        ),
    },
    "gitlab": {
        "push": Kind(_GITLAB | _PUSH, {}),
        "tag_push": Kind(_GITLAB | _PUSH, {}),
        "release": Kind(_GITLAB | {"action": ("action",), "tag": ("tag",)}, {"id": ("id",)}),
        "pipeline": Kind(
            _GITLAB | {"ref": ("object_attributes", "ref"), "status": ("object_attributes", "status")},
            {
                "source": ("object_attributes", "source"),
                "sha": ("object_attributes", "sha"),
                "id": ("object_attributes", "id"),
            },
        ),
    },
    "alertmanager": {"firing": Kind({"receiver": ("receiver",)}, {"alertname": (), "severity": ()})},
}


class Event(NamedTuple):
    """An event; `idle`: why it starts nothing whatever the rules are; `delivery`: stands for its repeats."""

    sender: SenderName
    kind: str
    fields: dict[str, Value]
    idle: str = ""
    delivery: str = ""


class Foreign(ValueError):
    """The body is no event of its sender; the text says what it lacks."""


class _Alert(BaseModel):
    status: Literal["firing", "resolved"]
    labels: dict[str, str]
    starts_at: AwareDatetime = Field(alias="startsAt")


class _Alerts(BaseModel):
    version: Literal["4"]
    receiver: str
    status: Literal["firing", "resolved"]
    group_key: Annotated[str, Field(min_length=1)] = Field(alias="groupKey")
    alerts: list[_Alert]


def names_field(sender: SenderName, kind: str, name: str) -> bool:
    """Whether events of that kind may have the field."""
    known = KINDS[sender][kind]
    label = sender == "alertmanager" and name.startswith(LABEL) and len(name) > len(LABEL)
    return label or name in known.needs or name in known.may


def event_of(sender: SenderName, kind: str, content: dict[str, Any]) -> Event:
    """The event in a body; `kind` is what GitHub says in its header, the others say it in the body.

    Raises:
        Foreign: the body is no such event.
        ValidationError: it is not Alertmanager's version 4.
    """
    if sender == "alertmanager":
        return _alerts(_Alerts.model_validate(content))
    said = kind if sender == "github" else content.get("object_kind")
    if not isinstance(said, str) or not said:
        raise Foreign("X-GitHub-Event: missing" if sender == "github" else "object_kind: missing")
    known = KINDS[sender].get(said)
    if known is None:
        return Event(sender, said[:80], {})
    fields = _found(known.needs | known.may, content)
    for name in known.needs:
        if name not in fields:
            raise Foreign(f"{'.'.join(known.needs[name])}: missing, so this is no {said} event")
    deleted = "sha" in known.needs and not str(fields["sha"]).strip("0")
    return Event(sender, said, fields, idle=f"{fields['ref']} was deleted" if deleted else "")


def _found(paths: Paths, content: dict[str, Any]) -> dict[str, Value]:
    found = {name: _at(path, content) for name, path in paths.items()}
    return {name: value for name, value in found.items() if _is_field(value)}


def _at(path: tuple[str, ...], content: Any) -> Any:
    for step in path:
        content = content.get(step) if isinstance(content, dict) else None
    return content


def _is_field(value: Any) -> bool:
    if isinstance(value, str):
        return 0 < len(value) <= LONGEST_FIELD and value.isprintable()
    return type(value) is int and abs(value) < 2**63


def _alerts(told: _Alerts) -> Event:
    """A group of alerts: while the earliest of them fires it is one delivery, however often it is sent."""
    firing = [alert for alert in told.alerts if alert.status == "firing"]
    if told.status == "resolved" or not firing:
        return Event("alertmanager", "resolved", {}, idle="the alerts are resolved")
    began: datetime = min(alert.starts_at for alert in firing).astimezone(UTC)
    key = hashlib.sha256(f"{told.group_key}\n{began.isoformat()}".encode()).hexdigest()
    shared = set.intersection(*(set(alert.labels.items()) for alert in firing))
    labels: dict[str, Any] = {f"{LABEL}{name}": value for name, value in shared}
    for name in KINDS["alertmanager"]["firing"].may:
        labels[name] = labels.get(f"{LABEL}{name}")
    said = {**labels, "receiver": told.receiver}
    fields = {name: value for name, value in said.items() if _is_field(value)}
    return Event("alertmanager", "firing", fields, delivery=key)
