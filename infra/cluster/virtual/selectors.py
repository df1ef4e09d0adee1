"""Label and field selectors in Kubernetes' own syntax, as predicates over objects."""

import re
from collections.abc import Callable, Mapping
from typing import Any

from infra.cluster.port import Object
from infra.errors import Invalid

Predicate = Callable[[Object], bool]
LabelTest = Callable[[Mapping[str, str]], bool]
_NONE: dict[str, str] = {}
_TERM = re.compile(
    r"\s*(?:(!)?([\w./-]+)\s*(?:(==|=|!=)\s*([\w.:-]*)|\s(in|notin)\s*\(([^)]*)\))?)\s*(?:,|$)"
)


def _label_test(negated: bool, key: str, operator: str, values: tuple[str, ...]) -> LabelTest:
    if operator in ("=", "==", "in"):
        return lambda labels: labels.get(key) in values
    if operator in ("!=", "notin"):
        return lambda labels: labels.get(key) not in values
    return (lambda labels: key not in labels) if negated else (lambda labels: key in labels)


def label_predicate(selector: str) -> Predicate | None:
    """Compile a label selector; None when it selects everything.

    Raises:
        Invalid: the selector cannot be parsed.
    """
    if not selector.strip():
        return None
    tests: list[LabelTest] = []
    equal: dict[str, str] | None = {}
    position = 0
    while position < len(selector):
        term = _TERM.match(selector, position)
        if term is None or term.end() == position:
            raise Invalid(f"unable to parse label selector {selector!r}")
        bang, key, operator, value, set_operator, members = term.groups()
        values = tuple(v.strip() for v in members.split(",")) if set_operator else (value or "",)
        tests.append(_label_test(bool(bang), key, operator or set_operator or "", values))
        if equal is not None:
            equal = {**equal, key: value or ""} if operator in ("=", "==") and key not in equal else None
        position = term.end()
    if equal is not None:
        return _has_labels(equal)
    return lambda obj: _holds(tests, obj["metadata"].get("labels") or {})


def _has_labels(wanted: dict[str, str]) -> Predicate:
    """The usual selector, asked for every event: all of it in one comparison."""
    items = wanted.items()
    return lambda obj: items <= (obj["metadata"].get("labels") or _NONE).items()


def _holds(tests: list[LabelTest], labels: Mapping[str, str]) -> bool:
    for test in tests:  # noqa: SIM110  (all() with a generator costs twice as much, for every event)
        if not test(labels):
            return False
    return True


def _field(obj: Object, path: list[str]) -> str:
    value: Any = obj
    for part in path:
        value = value.get(part) if isinstance(value, dict) else None
    return "" if value is None else str(value)


def field_predicate(selector: str) -> Predicate | None:
    """Compile a field selector (`a.b=c`, `a.b!=c`, joined by commas); None selects everything."""
    terms = [term for term in selector.split(",") if term.strip()]
    if not terms:
        return None
    tests: list[Predicate] = []
    for term in terms:
        key, equals, value = term.partition("!=") if "!=" in term else term.replace("==", "=").partition("=")
        if not equals:
            raise Invalid(f"invalid field selector {term!r}")
        path, wanted, unequal = key.strip().split("."), value.strip(), equals == "!="
        tests.append(lambda obj, p=path, w=wanted, u=unequal: (_field(obj, p) == w) != u)  # type: ignore[misc]
    return lambda obj: all(test(obj) for test in tests)


def predicate(labels: str, fields: str) -> Predicate | None:
    """Both selectors together; None when everything matches."""
    tests = [test for test in (label_predicate(labels), field_predicate(fields)) if test is not None]
    if not tests:
        return None
    if len(tests) == 1:
        return tests[0]
    return lambda obj: tests[0](obj) and tests[1](obj)
