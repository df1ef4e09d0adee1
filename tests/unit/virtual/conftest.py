"""Virtual loops, stores and whole virtual clusters for tests, and a dict that refuses to be changed."""

import asyncio
from collections.abc import Callable, Coroutine, Iterator
from copy import deepcopy
from typing import Any, NoReturn, TypeVar

import pytest

from infra.cluster.kinds import NAMESPACE, Kind
from infra.cluster.port import Object, Ref
from infra.cluster.virtual.description import Description, load_description
from infra.cluster.virtual.faults import Fault, FaultPlan
from infra.cluster.virtual.loop import VirtualLoop, new_loop
from infra.cluster.virtual.runtime import VirtualCluster
from infra.cluster.virtual.store import Store

T = TypeVar("T")
STAMP = "2026-01-01T00:00:00Z"
RunVirtual = Callable[[Callable[[VirtualLoop], Coroutine[Any, Any, T]]], T]
OpenCluster = Callable[..., VirtualCluster]


class Frozen(dict[str, Any]):
    """A dict that cannot be changed: whoever mutates a committed object is found at once."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("a committed object was changed in place")

    __setitem__ = __delitem__ = update = pop = popitem = clear = setdefault = __ior__ = _refuse

    def __deepcopy__(self, memo: dict[int, Any]) -> dict[str, Any]:
        return {key: deepcopy(value, memo) for key, value in self.items()}


class FrozenList(list[Any]):
    """A list that cannot be changed."""

    def _refuse(self, *_: object, **__: object) -> NoReturn:
        raise AssertionError("a committed list was changed in place")

    __setitem__ = __delitem__ = append = extend = insert = pop = remove = clear = sort = __iadd__ = _refuse

    def __deepcopy__(self, memo: dict[int, Any]) -> list[Any]:
        return [deepcopy(value, memo) for value in self]


def frozen(value: Any) -> Any:
    """`value` with every dict and list in it frozen."""
    if isinstance(value, dict):
        return Frozen({key: frozen(inner) for key, inner in value.items()})
    return FrozenList(frozen(inner) for inner in value) if isinstance(value, list) else value


class Watched:
    """A store, and everything it published: (type, object, object before)."""

    def __init__(self) -> None:
        self.events: list[tuple[str, Object, Object | None]] = []
        self.store = Store(lambda _, what, obj, before: self.events.append((what, obj, before)))

    @property
    def types(self) -> list[str]:
        return [what for what, _, _ in self.events]

    def make(self, kind: Kind, name: str = "a", namespace: str = "ns", **fields: Any) -> Object:
        return self.store.create(manifest(kind, name, namespace, **fields), STAMP)


def manifest(kind: Kind, name: str = "a", namespace: str = "ns", **fields: Any) -> Object:
    """A manifest; `meta` goes into the metadata, the rest beside it."""
    meta = {"name": name, **fields.pop("meta", {})}
    if kind.namespaced:
        meta["namespace"] = namespace
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **fields}


def ref(kind: Kind, name: str = "a", namespace: str = "ns") -> Ref:
    return Ref(kind, namespace if kind.namespaced else "", name)


@pytest.fixture
def watched() -> Watched:
    """A store with the namespace `ns`; its events so far are forgotten."""
    found = Watched()
    found.make(NAMESPACE, "ns")
    found.events.clear()
    return found


@pytest.fixture
def run_virtual() -> RunVirtual[Any]:
    """Runs `body(loop)` on a virtual loop of its own."""

    def run(body: Callable[[VirtualLoop], Coroutine[Any, Any, Any]]) -> Any:
        loop = new_loop()
        with asyncio.Runner(loop_factory=lambda: loop) as runner:
            return runner.run(body(loop))

    return run


@pytest.fixture
def open_cluster() -> Iterator[OpenCluster]:
    """Opens virtual clusters (preset `fast` unless a description is given), and closes them."""
    opened: list[VirtualCluster] = []

    def open_(
        description: Description | None = None,
        *,
        seed: int = 1,
        state: bytes | None = None,
        faults: tuple[Fault, ...] = (),
    ) -> VirtualCluster:
        found = VirtualCluster(description or load_description("fast"), seed, FaultPlan(fault=faults))
        opened.append(found)
        found.open(state)
        return found

    yield open_
    for each in opened:
        each.close()
