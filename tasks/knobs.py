"""PURE. The catalogue of tuning knobs: deployments/knobs/*.toml, one file per Kubernetes object.

A knob's `set` says which fields of its object get which value, its `end` where the value that is in
force can be read: a field that was accepted is not yet one that works. Paths are TOML keys, so
`metadata.annotations."a.b/c"` is one of three parts; `{value}`, or `{part}` of a value of several
parts, stands for the knob's value.
"""

import difflib
import tomllib
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from infra.errors import ProfileError
from infra.explain import what_is_wrong

FOLDER = Path(__file__).parents[1] / "deployments" / "knobs"
Scalar = Literal["int", "bool", "text", "list", "labels"]
RollOut = Literal["", "machine-config-pool", "tuned", "enactments", "hyperconverged"]
FieldPath = tuple[str, ...]

_PYTHON: dict[str, type] = {"int": int, "bool": bool, "text": str, "list": list, "labels": dict}
_CALLED = {
    "int": "a whole number",
    "bool": "true or false",
    "text": "text in quotes",
    "list": "a list of texts",
    "labels": "a table of labels",
}


class _Table(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid")


class End(_Table):
    """Where the value in force is read: a field, a kubelet's setting or a container's argument.

    `name` "*" means all objects of the kind, which then have to agree.
    """

    reader: Literal["field", "kubelet", "arguments"] = "field"
    api_version: str = ""
    kind: str = ""
    name: str = ""
    namespace: str = ""
    labels: str = ""
    path: str
    value: Any = "{value}"
    label: str = ""


class Target(_Table):
    """The object that a file's knobs set; `creates`: it is made for the run when it is not there.

    Objects are set in the order of `order`; equal ones are rolled out together.
    """

    order: int
    api_version: str
    kind: str
    name: str
    namespace: str = ""
    creates: bool = False
    rollout: RollOut = ""
    disturbs: str = ""
    body: dict[str, Any] = Field(default_factory=dict)


class Knob(_Table):
    """One knob; `advice` is what we would set, `default` what an untouched cluster has."""

    name: str
    target: Target | None = None
    type: Scalar | dict[str, Scalar] = "text"
    choices: tuple[str, ...] = ()
    least: int | None = None
    advice: Any
    default: str
    why: str
    source: str
    disturbs: str = ""
    irreversible: str = ""
    verify: str
    revert: str
    warn_below: Any = None
    warning: str = ""
    traps: tuple[str, ...] = ()
    set: dict[str, Any] = Field(default_factory=dict)
    end: tuple[End, ...] = ()
    undo: dict[str, Any] = Field(default_factory=dict)
    by_hand: str = ""

    @property
    def disturbance(self) -> str:
        """What happens to the cluster when the knob is set; empty: nothing that anybody feels."""
        return self.disturbs or (self.target.disturbs if self.target else "")

    @property
    def fields(self) -> list[tuple[FieldPath, Any]]:
        """The fields that it sets, each with its template."""
        return [(parts(path), template) for path, template in self.set.items()]

    @property
    def ends(self) -> tuple[End, ...]:
        """Where it is verified: its own fields when the catalogue names no other place."""
        if self.end:
            return self.end
        return tuple(End(path=path, value=template) for path, template in self.set.items())


class _File(_Table):
    object: Target | None = None
    end: dict[str, Any] = Field(default_factory=dict)
    knob: tuple[dict[str, Any], ...]


@cache
def catalogue() -> Mapping[str, Knob]:
    """Every knob by name, in the order in which they are set.

    Raises:
        ProfileError: a file of the catalogue is wrong; the text names it.
    """
    found = [knob for path in sorted(FOLDER.glob("*.toml")) for knob in _read(path)]
    found.sort(key=lambda knob: knob.target.order if knob.target else 1000)
    return {knob.name: knob for knob in found}


def _read(path: Path) -> Iterator[Knob]:
    try:
        file = _File.model_validate(tomllib.loads(path.read_text(encoding="utf-8")))
        for each in file.knob:
            ends = [{**file.end, **end} for end in each.get("end", ())]
            yield Knob.model_validate({**each, "end": ends, "target": file.object})
    except ValidationError as error:
        raise ProfileError(f"knobs {path.name}: {what_is_wrong(error, Knob)}") from None
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"knobs {path.name}: {error}") from None


def parts(path: str) -> FieldPath:
    """A TOML key as its parts."""
    found: list[str] = []
    node: Any = tomllib.loads(f"{path} = 0")
    while isinstance(node, dict):
        key, node = next(iter(node.items()))
        found.append(key)
    return tuple(found)


def wrong(name: str, value: Any) -> str:
    """Why a knob cannot have a value; empty when it can."""
    knobs = catalogue()
    if name not in knobs:
        near = difflib.get_close_matches(name, knobs, 1, 0.6)
        hint = f"did you mean {near[0]}?" if near else "docs/reference/knobs.md lists them"
        return f"knobs.{name} is not a knob; {hint}"
    knob = knobs[name]
    if knob.by_hand:
        return f"knobs.{name} is set by hand: {knob.by_hand}"
    if not isinstance(knob.type, dict):
        return _wrong(knob, f"knobs.{name}", knob.type, value)
    if not isinstance(value, dict) or value.keys() != knob.type.keys():
        return f"knobs.{name} is {value!r}; it must be a table of {', '.join(knob.type)}"
    said = (_wrong(knob, f"knobs.{name}.{part}", knob.type[part], value[part]) for part in knob.type)
    return next((text for text in said if text), "")


def _wrong(knob: Knob, key: str, kind: Scalar, value: Any) -> str:
    fits = isinstance(value, _PYTHON[kind]) and (kind == "bool" or not isinstance(value, bool))
    if kind == "list" and fits:
        fits = all(isinstance(each, str) for each in value)
    if not fits:
        return f"{key} is {value!r}; it must be {_CALLED[kind]}"
    if kind == "int" and knob.least is not None and value < knob.least:
        return f"{key} is {value}; it must be {knob.least} or more"
    if knob.choices and value not in knob.choices:
        return f"{key} is {value!r}; it must be one of {', '.join(knob.choices)}"
    return ""


def rendered(template: Any, value: Any) -> Any:
    """A template with the knob's value (or the parts of it) put in."""
    values = value if isinstance(value, dict) else {}
    values = {**values, "value": value}
    return _filled(template, values)


def _filled(template: Any, values: Mapping[str, Any]) -> Any:
    if isinstance(template, dict):
        return {key: _filled(inner, values) for key, inner in template.items()}
    if isinstance(template, list | tuple):
        return [_filled(inner, values) for inner in template]
    if not isinstance(template, str):
        return template
    for name, value in values.items():
        if template == f"{{{name}}}":
            return value
        template = template.replace(f"{{{name}:text}}", str(value)).replace(f"{{{name}}}", str(value))
    return template


def warning_of(knob: Knob, value: Any) -> str:
    """What is to be said of this value of a knob although it is allowed."""
    least = knob.warn_below
    if least is None:
        return ""
    pairs = [(value[part], least[part]) for part in least] if isinstance(least, dict) else [(value, least)]
    return knob.warning if any(given < bound for given, bound in pairs) else ""
