"""What is said of a value in a TOML file that does not fit its model: one line, which key, what to do.

Profiles, cluster descriptions and every other file of a user's are checked by pydantic; its own texts
name neither the nearest right key nor what to write instead.
"""

import difflib
from collections.abc import Iterator, Sequence
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic_core import ErrorDetails

_EXPECTED = {
    "int": "a whole number",
    "float": "a number",
    "bool": "true or false",
    "string": "text in quotes",
    "tuple": "a list",
    "model": "a table of keys",
}
_REWORDED = {
    "Input should be ": "must be ",
    "String should ": "must ",
    "Value error, ": "",
    "Tuple should ": "must ",
}


def what_is_wrong(error: ValidationError, model: type[BaseModel]) -> str:
    """One line for the first thing that is wrong, and how many more there are."""
    problems = error.errors(include_url=False, include_context=True)
    more = f" (and {len(problems) - 1} more)" if len(problems) > 1 else ""
    return f"{problem_of(problems[0], model)}{more}"


def syntax(message: str, text: str) -> str:
    """What tomllib says of `text`, place first: `line 3, column 5: not TOML: invalid value`."""
    what, _, place = message.rstrip(")").partition(" (at ")
    if not place.startswith("line "):
        place = f"line {text.rstrip().count(chr(10)) + 1}"
    return f"{place}: not TOML: {what[:1].lower()}{what[1:]}"


def unknown_choice(given: str, choices: Sequence[str], kind: str) -> str:
    """`boots is not a stage; did you mean boot? (preflight, ...)`."""
    near = difflib.get_close_matches(given, choices, 1, 0.6)
    hint = f"did you mean {near[0]}? there are " if near else "there are "
    return f"{given or 'an empty text'} is not a {kind}; {hint}{', '.join(choices)}"


def keys_of(model: type[BaseModel], prefix: str) -> str:
    """The keys of one table: `boot.batches, boot.repeats ...`."""
    return ", ".join(f"{prefix}.{name}".lstrip(".") for name in model.model_fields)


def problem_of(problem: ErrorDetails, model: type[BaseModel]) -> str:
    """`boot.limit_s is 'abc'; it must be a number`; what a model as a whole says begins with the key."""
    names = tuple(part for part in problem["loc"] if isinstance(part, str))
    kind, path = problem["type"], _dotted(problem["loc"])
    if kind == "extra_forbidden":
        return unknown_key(names, model)
    if kind == "value_error" and not path:
        return _reworded(problem["msg"])
    if kind == "value_error" and _is_table(model, names):
        return f"{path}.{_reworded(problem['msg'])}"
    value = _shown(problem["input"])
    expected = next((text for prefix, text in _EXPECTED.items() if kind.startswith(f"{prefix}_")), "")
    if expected and kind.endswith(("_type", "_parsing", "_from_float")):
        return f"{path} is {value}; it must be {expected}"
    return f"{path} is {value}; it {_reworded(problem['msg'])}"


def _reworded(text: str) -> str:
    for old, new in _REWORDED.items():
        text = text.replace(old, new)
    return text


def _shown(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def _dotted(loc: Sequence[int | str]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{part}" for part in loc).lstrip(".")


def _is_table(model: type[BaseModel], path: Sequence[str]) -> bool:
    """Whether a table, not a plain value, is at a dotted path."""
    return ".".join(path) in {name.rpartition(".")[0] for name, _ in keys(model)}


def unknown_key(path: Sequence[str], model: type[BaseModel]) -> str:
    """`boot.batchs is not a key; did you mean boot.batches?`: siblings first, then every key."""
    given, parent = ".".join(path), ".".join(path[:-1])
    known = [name for name, _ in keys(model)]
    siblings = [name for name in known if name.rpartition(".")[0] == parent]
    lasts = {name.rpartition(".")[2]: name for name in siblings}
    near = [lasts[last] for last in difflib.get_close_matches(path[-1], lasts, 1)]
    near = near or [name for name in known if name.rpartition(".")[2] == path[-1]]
    if near:
        return f"{given} is not a key; did you mean {near[0]}?"
    return f"{given} is not a key; there are {', '.join(siblings) or keys_of(model, '')}"


def keys(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Every key of a profile as (dotted path, its `FieldInfo`); a table comes before its own keys."""
    for name, field in model.model_fields.items():
        yield f"{prefix}{name}", field
        annotation = field.annotation
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            yield from keys(annotation, f"{prefix}{name}.")
