"""Calls of a Cluster as the API server's authorizer sees them, against the table of rights."""

from collections.abc import AsyncIterator, Iterable
from typing import Any, NamedTuple

from infra.cluster.port import Cluster, Object, ObjectList, Ref, Scope, WatchBatch, ref_of
from infra.errors import NotFound
from tasks.rights import SUBRESOURCES, Right

FOR_EVERYBODY = {"selfsubjectaccessreviews", "selfsubjectreviews"}
"""What an API server lets every authenticated caller do."""


class Call(NamedTuple):
    """One request: `resource` with its subresource; `namespace` and `name` may be empty."""

    verb: str
    group: str
    resource: str
    namespace: str
    name: str

    def needs(self, right: Right) -> bool:
        """Whether this very right allows the call."""
        return (
            self.verb == right.verb
            and (self.group, self.resource) == (right.kind.group, right.resource)
            and right.namespace in ("", self.namespace)
            and right.name in ("", self.name)
        )


def beyond(calls: Iterable[Call], rights: Iterable[Right]) -> set[Call]:
    """Calls that no right allows."""
    rights = list(rights)
    return {
        call
        for call in set(calls)
        if call.resource not in FOR_EVERYBODY and not any(call.needs(right) for right in rights)
    }


def unused(calls: Iterable[Call], rights: Iterable[Right]) -> list[Right]:
    """Rights that no call needs, those aside that cannot be seen here."""
    made = set(calls)
    return [right for right in rights if not right.unseen and not any(call.needs(right) for call in made)]


class RecordedCalls:
    """Passes everything on, and remembers it in `calls`."""

    def __init__(self, calls: set[Call]) -> None:
        self.calls = calls

    def through(self, inner: Cluster) -> Cluster:
        """A cluster between a stage and `inner`."""
        return _Recording(inner, self.calls)


class _Recording:
    def __init__(self, inner: Cluster, calls: set[Call]) -> None:
        self._inner = inner
        self._calls = calls

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)

    def _note(self, verb: str, ref: Ref | Scope, subresource: str = "") -> None:
        kind, resource, name = ref.kind, ref.kind.plural, getattr(ref, "name", "")
        if "/" in name:
            name, subresource = name.split("/")[:2]
        namespace = name if resource == "namespaces" and verb != "create" else ref.namespace
        resource = f"{resource}/{subresource}" if subresource else resource
        self._calls.add(Call(verb, kind.group, resource, namespace, name))

    async def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        self._note("create", ref_of({**obj, "metadata": {"name": "", **obj["metadata"]}}))
        return await self._inner.create(obj, dry_run=dry_run)

    async def apply(self, obj: Object, manager: str, *, force: bool = False, dry_run: bool = False) -> Object:
        self._note("patch", ref_of(obj))
        try:
            await self._inner.get(ref_of(obj))
        except NotFound:
            self._note("create", ref_of(obj))
        return await self._inner.apply(obj, manager, force=force, dry_run=dry_run)

    async def patch(self, ref: Ref, merge: Object, *, subresource: str = "") -> Object:
        self._note("patch", ref, subresource)
        return await self._inner.patch(ref, merge, subresource=subresource)

    async def get(self, ref: Ref) -> Object:
        self._note("get", ref)
        return await self._inner.get(ref)

    async def list(self, scope: Scope, *, limit: int = 0, continue_: str = "") -> ObjectList:
        self._note("list", scope)
        return await self._inner.list(scope, limit=limit, continue_=continue_)

    async def delete(
        self, ref: Ref, *, uid: str = "", propagation: str = "Background", grace_s: int | None = None
    ) -> None:
        self._note("delete", ref)
        await self._inner.delete(ref, uid=uid, propagation=propagation, grace_s=grace_s)

    async def subresource(self, ref: Ref, verb: str, body: Object | None = None) -> None:
        self._note("update", Ref(SUBRESOURCES, ref.namespace, ref.name), verb)
        await self._inner.subresource(ref, verb, body)

    def watch(self, scope: Scope, resource_version: str) -> AsyncIterator[WatchBatch]:
        self._note("watch", scope)
        return self._inner.watch(scope, resource_version)
