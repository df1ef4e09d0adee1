"""What a webhook may start: hooks by name, each a deployment and the parameters that a sender may set.

And events: which of a sender's own events starts which deployment, with which parameters.
"""

import json
import tomllib
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator

from flows.forms import FORMS
from flows.webhook.events import KINDS, Event, SenderName, names_field
from infra.errors import ProfileError, VirtscaleError
from infra.explain import syntax

FILE = Path(__file__).parents[2] / "deployments" / "webhook.toml"

HookName = Annotated[str, Field(pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$")]
Scalar = str | int | float | bool


class _Part(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)


class Hook(_Part):
    """One thing that can be started: `parameters` maps a field of its form to its values, true: any."""

    deployment: str = Field(pattern=r"^[^/]+/[^/]+$")
    parameters: dict[str, bool | list[Scalar]] = {}
    fixed: dict[str, Any] = {}


class EventRule(_Part):
    """An event that starts something.

    `match` names fields and the patterns (of a shell) one of which each has to match; `take` maps a parameter
    to the field that is its value; `fixed` parameters are always so. A `dry_run` checks and starts nothing.
    """

    sender: SenderName
    event: str
    match: dict[str, str | list[str]] = {}
    deployment: str = Field(pattern=r"^[^/]+/[^/]+$")
    fixed: dict[str, Any] = {}
    take: dict[str, str] = {}
    dry_run: bool = False

    @model_validator(mode="after")
    def _is_known(self) -> Self:
        """Event and fields are the sender's; no parameter has two values."""
        kinds = KINDS[self.sender]
        if self.event not in kinds:
            raise ValueError(f"event: {self.sender} has {', '.join(kinds)}, not {self.event}")
        for name in (*self.match, *self.take.values()):
            if not names_field(self.sender, self.event, name):
                fields = ", ".join((*kinds[self.event].needs, *kinds[self.event].may))
                raise ValueError(f"{self.sender}'s {self.event} has no field {name} ({fields})")
        if both := sorted(set(self.fixed) & set(self.take)):
            raise ValueError(f"{both[0]} is fixed and taken")
        return self


class Limits(_Part):
    """What a sender may take of this machine."""

    body_kib: int = Field(64, ge=1, le=1024)
    event_kib: int = Field(1024, ge=1, le=25 * 1024)
    body_s: float = Field(10.0, gt=0, le=300)
    prefect_s: float = Field(10.0, gt=0, le=300)
    requests_per_s: float = Field(5.0, gt=0, le=1e6)
    burst: int = Field(60, ge=1, le=1_000_000)
    failures_per_s: float = Field(1.0, gt=0, le=1e6)
    failures_burst: int = Field(30, ge=1, le=1_000_000)


class Rules(_Part):
    """The file: hooks, events, and limits."""

    hooks: dict[HookName, Hook]
    events: dict[HookName, EventRule] = {}
    limits: Limits = Limits()


class Unacceptable(VirtscaleError):
    """A request asks for what its hook or its flow's form does not allow; the text begins with a path."""

    exit_code = 2


def load_rules(path: Path) -> Rules:
    """The rules of a file.

    Raises:
        ProfileError: it cannot be read or says something wrong.
    """
    try:
        text = path.read_text(encoding="utf-8")
        return Rules.model_validate(tomllib.loads(text))
    except OSError as error:
        raise ProfileError(f"{path}: cannot be read: {error.strerror}") from None
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{path}: {syntax(str(error), text)}") from None
    except ValidationError as error:
        raise ProfileError(f"{path}: {first_of(error)}") from None


def first_of(error: ValidationError) -> str:
    """`seed: Input should be a valid integer`: what is wrong first, and where."""
    first = error.errors(include_url=False, include_input=False, include_context=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    return f"{where or 'request'}: {first['msg']}"[:500]


def allowed(hook: Hook, given: dict[str, Any]) -> dict[str, Any]:
    """The parameters of a request, all of them the hook's.

    Raises:
        Unacceptable: one that is not, or a value that is not.
    """
    for name, value in given.items():
        rule = hook.parameters.get(name, False)
        if rule is False:
            takes = ", ".join(sorted(hook.parameters)) or "none"
            raise Unacceptable(f"parameters.{name[:80]}: not one of this hook's parameters ({takes})")
        if isinstance(rule, list) and not any(type(value) is type(each) and value == each for each in rule):
            raise Unacceptable(f"parameters.{name}: must be one of {', '.join(map(str, rule))}")
    return {**given, **hook.fixed}


def chosen(rules: Rules, event: Event) -> tuple[str, EventRule | None]:
    """The first rule that an event fulfils, with its name; else why it starts nothing, and None."""
    if event.idle:
        return event.idle, None
    named = {name: rule for name, rule in rules.events.items() if rule.sender == event.sender}
    said = {name: missing(rule, event) for name, rule in named.items() if rule.event == event.kind}
    for name, lack in said.items():
        if not lack:
            return name, named[name]
    if said:
        return "; ".join(f"rule {name}: {lack}" for name, lack in said.items()), None
    kinds = ", ".join(sorted({rule.event for rule in named.values()})) or "none"
    return f"no rule for {event.sender}'s {event.kind} (rules are for: {kinds})", None


def missing(rule: EventRule, event: Event) -> str:
    """What an event lacks to start what the rule says: `status is failed, not success`; nothing: empty."""
    for name, patterns in rule.match.items():
        wanted = [patterns] if isinstance(patterns, str) else patterns
        if name not in event.fields:
            return f"no {name}, wanted {' or '.join(wanted)}"
        if not any(fnmatchcase(str(event.fields[name]), each) for each in wanted):
            return f"{name} is {event.fields[name]}, not {' or '.join(wanted)}"
    absent = [field for field in rule.take.values() if field not in event.fields]
    return f"no {absent[0]}, which is a parameter" if absent else ""


def taken(rule: EventRule, event: Event) -> dict[str, Any]:
    """The parameters of the run that an event starts: what is fixed, and the fields that the rule takes."""
    return {**rule.fixed, **{name: event.fields[field] for name, field in rule.take.items()}}


def complete(flow_name: str, request: dict[str, Any]) -> dict[str, Any]:
    """The request as its flow would take it, checked to the last key of the profile.

    Raises:
        Unacceptable: the form or the profile refuses it.
    """
    form = FORMS.get(flow_name)
    if form is None:
        return request
    try:
        filled = form.model_validate_json(json.dumps(request), strict=True)
        if hasattr(filled, "request"):
            filled.request()
    except ValidationError as error:
        raise Unacceptable(f"parameters.{first_of(error)}") from None
    except VirtscaleError as error:
        raise Unacceptable(f"parameters: {error}") from None
    return request
