"""PURE. Where a profile's values come from (name, file, `--set`), and what is said when one is wrong.

Every text made here is one line: where, which key, what is wrong, what to do.
"""

import tomllib
import types
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Annotated, Any, NamedTuple, Self, Union, get_args, get_origin

import yaml
from pydantic import BaseModel, ValidationError

from infra.errors import ProfileError
from infra.explain import keys_of, syntax, unknown_choice, unknown_key, what_is_wrong
from infra.own_manifest import problem, stated

FOLDER = Path(__file__).parents[1] / "deployments" / "profiles"
"""The built-in profiles: `<name>.toml`."""


def built_in_names() -> list[str]:
    """Names of the profiles that come with virtscale."""
    return sorted(path.stem for path in FOLDER.glob("*.toml"))


def read_source(name_or_path: str) -> tuple[str, dict[str, Any]]:
    """A profile's file, parsed: (how messages call it, its content).

    Raises:
        ProfileError: no such name or file, not readable, or not TOML (with the line).
    """
    is_path = "/" in name_or_path or name_or_path.endswith(".toml")
    path = Path(name_or_path) if is_path else FOLDER / f"{name_or_path}.toml"
    where = f"profile {path.name if not is_path else name_or_path}"
    try:
        text = path.read_text(encoding="utf-8")
        return where, tomllib.loads(text)
    except FileNotFoundError:
        if is_path:
            raise ProfileError(f"{where}: there is no such file") from None
        raise ProfileError(f"--profile {_unknown_profile(name_or_path)}") from None
    except OSError as error:
        raise ProfileError(f"{where}: cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise ProfileError(f"{where}: is not text in UTF-8 (byte {error.start})") from None
    except tomllib.TOMLDecodeError as error:
        raise ProfileError(f"{where}: {syntax(str(error), text)}") from None


def _unknown_profile(name: str) -> str:
    return f"{unknown_choice(name, built_in_names(), 'profile')}; or give a path that ends in .toml"


class Override(NamedTuple):
    """One `--set`: the text as given, the key's path, the value (None leaves the key out)."""

    text: str
    path: tuple[str, ...]
    value: Any

    @classmethod
    def parse(cls, text: str, model: type[BaseModel]) -> Self:
        """Read `a.b=value`; the value is written as in TOML, quotes and brackets may be left out.

        Raises:
            ProfileError: no `=`, or a key that the model does not have.
        """
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise ProfileError(f"--set {text}: write it as key=value, for example boot.limit_s=600")
        path = tuple(part.strip() for part in key.split("."))
        annotation = _annotation(model, path)
        if annotation is None:
            raise ProfileError(f"--set {text}: {unknown_key(path, model)}")
        if isinstance(annotation, type) and issubclass(annotation, BaseModel):
            raise ProfileError(f"--set {text}: {key} is a table; set one of {keys_of(annotation, key)}")
        return cls(text, path, _value(value.strip(), annotation))


def _annotation(model: type[BaseModel], path: Sequence[str]) -> Any:
    """The type at a dotted path; None when there is no such key."""
    annotation: Any = model
    for part in path:
        if annotation is Any or get_origin(annotation) is dict:
            return Any
        if not (isinstance(annotation, type) and issubclass(annotation, BaseModel)):
            return None
        field = annotation.model_fields.get(part)
        if field is None:
            return None
        annotation = field.annotation
    return annotation


def _kinds(annotation: Any) -> Iterator[Any]:
    """The plain types (and literals) that an annotation allows at its top."""
    origin = get_origin(annotation)
    if origin is Annotated:
        yield from _kinds(get_args(annotation)[0])
    elif origin in {Union, types.UnionType}:
        for each in get_args(annotation):
            yield from _kinds(each)
    else:
        yield origin or annotation


def _value(text: str, annotation: Any) -> Any:
    kinds = list(_kinds(annotation))
    if types.NoneType in kinds and text.lower() in {"", "none"}:
        return None
    if tuple in kinds:
        return _items(text)
    scalar = _scalar(text)
    is_text = not ({int, float, bool, Any} & set(kinds))
    return text.strip("\"'") if is_text and not isinstance(scalar, list | dict) else scalar


def _items(text: str) -> Any:
    inner = text.removeprefix("[").removesuffix("]").strip()
    return [_scalar(part.strip()) for part in inner.rstrip(",").split(",")] if inner else []


def _scalar(text: str) -> Any:
    try:
        return tomllib.loads(f"value = {text}")["value"]
    except tomllib.TOMLDecodeError:
        return text


def merge(data: Mapping[str, Any], overrides: Sequence[Override]) -> dict[str, Any]:
    """The file's content with the overrides on top; `data` is left as it is.

    Raises:
        ProfileError: the file has a plain value where an override needs a table.
    """
    merged = _copy(data)
    for each in overrides:
        table = merged
        for part in each.path[:-1]:
            table = table.setdefault(part, {})
            if not isinstance(table, dict):
                raise ProfileError(f"--set {each.text}: {part} is not a table in the profile")
        if each.value is None:
            table.pop(each.path[-1], None)
        else:
            table[each.path[-1]] = each.value
    return merged


def with_manifest(where: str, data: dict[str, Any]) -> dict[str, Any]:
    """The content of the file that `vm.manifest` names in its place, and in `[vm]` what it decides.

    A path is taken from the current folder, as kubectl does. The profile is whole afterwards: it may be
    sent to another machine.

    Raises:
        ProfileError: no such file, no YAML, no VirtualMachine that VMs can be made of.
    """
    vm = data.get("vm")
    path = vm.get("manifest") if isinstance(vm, dict) else None
    if not isinstance(vm, dict) or not isinstance(path, str) or not path:
        return data
    try:
        manifest = _without_nulls(yaml.safe_load(Path(path).read_text(encoding="utf-8")))
        said = problem(manifest) if isinstance(manifest, dict) else "is no single YAML object"
        decided = {} if said else stated(manifest)
    except (OSError, UnicodeDecodeError) as error:
        raise ProfileError(f"{where}: vm.manifest {path}: cannot be read: {error}") from None
    except yaml.YAMLError as error:
        raise ProfileError(f"{where}: vm.manifest {path}: {' '.join(str(error).split())}") from None
    except (ValueError, TypeError, AttributeError) as error:
        raise ProfileError(f"{where}: vm.manifest {path}: {error}") from None
    if said:
        raise ProfileError(f"{where}: vm.manifest {path}: it {said}")
    return {**data, "vm": {**decided, **vm, "manifest": manifest}}


def _without_nulls(value: Any) -> Any:
    """To Kubernetes a null is a key that is not there; TOML has none."""
    if isinstance(value, list):
        return [_without_nulls(each) for each in value]
    if isinstance(value, dict):
        return {key: _without_nulls(each) for key, each in value.items() if each is not None}
    return value


def _copy(table: Mapping[str, Any]) -> dict[str, Any]:
    return {key: _copy(value) if isinstance(value, dict) else value for key, value in table.items()}


def explain(where: str, error: ValidationError, model: type[BaseModel], overrides: Sequence[Override]) -> str:
    """One line for the first thing that is wrong, and how many more there are."""
    first = error.errors(include_url=False)[0]
    names = tuple(part for part in first["loc"] if isinstance(part, str))
    whole_table = first["type"] == "value_error"
    culprit = next(
        (each for each in overrides if each.path[: len(names) if whole_table else None] == names), None
    )
    return f"{f'--set {culprit.text}' if culprit else where}: {what_is_wrong(error, model)}"
