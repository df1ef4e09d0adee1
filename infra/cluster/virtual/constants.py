"""The constants of a description by their dotted names: which there are, and where each is from."""

from collections.abc import Iterator
from typing import Any, TypeVar

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from infra.cluster.virtual.part import Rate

M = TypeVar("M", bound=BaseModel)

ABOUT_THE_FILE = {"name", "source", "assumptions"}
"""Keys of a description that say nothing about the cluster."""


def constants(model: type[BaseModel], prefix: str = "") -> Iterator[tuple[str, FieldInfo]]:
    """Every constant as (dotted name, its `FieldInfo`); a rate (qps and burst) is one."""
    for name, field in model.model_fields.items():
        inner: Any = field.annotation
        if isinstance(inner, type) and issubclass(inner, BaseModel) and inner is not Rate:
            yield from constants(inner, f"{prefix}{name}.")
        elif f"{prefix}{name}" not in ABOUT_THE_FILE:
            yield f"{prefix}{name}", field


def stated(description: BaseModel, prefix: str = "") -> Iterator[str]:
    """The constants that the file itself gives a value."""
    for name in description.model_fields_set:
        value = getattr(description, name)
        if isinstance(value, BaseModel) and not isinstance(value, Rate):
            yield from stated(value, f"{prefix}{name}.")
        else:
            yield f"{prefix}{name}"


def is_assumption(field: FieldInfo) -> bool:
    """Whether its description says that nobody published it: assumed, or derived from another figure."""
    return (field.description or "").partition("; ")[2].startswith(("assumption", "derived"))


def value_of(description: BaseModel, name: str) -> Any:
    """The value of a constant."""
    found: Any = description
    for part in name.split("."):
        found = getattr(found, part)
    return found


def with_value(description: M, name: str, value: Any) -> M:
    """The same description with one constant changed, checked as from a file.

    Raises:
        pydantic.ValidationError: the constant cannot have that value.
    """
    values = description.model_dump()
    *tables, last = name.split(".")
    table = values
    for each in tables:
        table = table[each]
    table[last] = value.model_dump() if isinstance(value, Rate) else value
    return type(description).model_validate(values)
