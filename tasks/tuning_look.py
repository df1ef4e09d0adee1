"""What a cluster's knobs stand at: nothing here changes anything."""

import json
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from infra.cluster.kinds import NODE, Kind, kind_of
from infra.cluster.port import Object, Ref, Scope, list_all
from infra.errors import ClusterError, Forbidden, NotFound
from infra.world import World
from tasks.knobs import End, FieldPath, Knob, Target, parts, rendered
from tasks.requests import resent

WORKERS = "node-role.kubernetes.io/worker"
CONFIGZ = Kind("KubeletConfigz", "", "v1", "nodes", namespaced=False, status_subresource=False)
"""A kubelet's settings as it serves them, through the API server: `nodes/NAME/proxy/configz`."""
VIRTUAL_CONFIGZ = "virtual.virtscale.io/kubelet"
"""Where a virtual kubelet, which serves nothing, says the same."""


class Mixed(NamedTuple):
    """Objects that ought to agree do not: the values that were found."""

    values: tuple[Any, ...]


@dataclass(slots=True)
class Look:
    """Reads each object once; `names` fills the placeholders of the catalogue (storage classes)."""

    world: World
    names: dict[str, str]
    _one: dict[Ref, Object | None] = field(default_factory=dict)
    _many: dict[Scope, list[Object] | None] = field(default_factory=dict)
    _kubelets: list[Object] | None = None

    async def one(self, ref: Ref) -> Object | None:
        """An object; None when there is none, its kind is not served, or it may not be read."""
        if ref not in self._one:
            try:
                self._one[ref] = await resent(self.world, lambda: self.world.cluster.get(ref))
            except (NotFound, Forbidden):
                self._one[ref] = None
        return self._one[ref]

    async def many(self, scope: Scope) -> list[Object] | None:
        """The objects of a scope; None when the kind is not served or may not be read."""
        if scope not in self._many:
            try:
                self._many[scope] = (
                    await resent(self.world, lambda: list_all(self.world.cluster, scope))
                ).items
            except (NotFound, Forbidden):
                self._many[scope] = None
        return self._many[scope]

    async def target(self, target: Target) -> Ref | None:
        """The object that a knob sets; None when this cluster has no such thing."""
        kind = kind_of(target.api_version, target.kind)
        if target.name == "*":
            found = await self.many(Scope(kind, target.namespace)) or []
            return Ref(kind, target.namespace, found[0]["metadata"]["name"]) if found else None
        ref = Ref(kind, target.namespace, self.named(target.name))
        if target.creates:
            return ref if await self.many(Scope(kind, target.namespace)) is not None else None
        return ref if await self.one(ref) is not None else None

    def named(self, text: Any) -> Any:
        """A text of the catalogue with its placeholders filled."""
        for name, value in self.names.items():
            text = text.replace(f"{{{name}}}", value) if isinstance(text, str) else text
        return text

    async def at(self, end: End, ref: Ref) -> Any:
        """The value at an end point; None when it is not there, `Mixed` when objects disagree."""
        if end.reader == "kubelet":
            return _agreed([settings.get(end.path) for settings in await self._settings()])
        kind = kind_of(end.api_version, end.kind) if end.kind else ref.kind
        if end.name == "*":
            objects = await self.many(Scope(kind, end.namespace, end.labels)) or []
            return _agreed([value_at(obj, parts(end.path)) for obj in objects])
        namespace = (end.namespace or ref.namespace) if kind.namespaced else ""
        obj = await self.one(Ref(kind, namespace, end.name) if end.name else ref)
        if obj is None:
            return None
        return argument(obj, end.path) if end.reader == "arguments" else value_at(obj, parts(end.path))

    async def _settings(self) -> list[Object]:
        if self._kubelets is None:
            nodes = await self.many(Scope(NODE, labels=WORKERS)) or []
            self._kubelets = [await self._configz(node) for node in nodes]
        return self._kubelets

    async def _configz(self, node: Object) -> Object:
        said = (node["metadata"].get("annotations") or {}).get(VIRTUAL_CONFIGZ)
        if said:
            virtual: Object = json.loads(said)
            return virtual
        ref = Ref(CONFIGZ, "", f"{node['metadata']['name']}/proxy/configz")
        try:
            served: Object = (await self.world.cluster.get(ref)).get("kubeletconfig") or {}
        except ClusterError:
            return {}
        return served

    async def ends(self, knob: Knob, ref: Ref) -> list[Any]:
        """The values at all end points of a knob."""
        return [await self.at(end, ref) for end in knob.ends]


def _agreed(values: list[Any]) -> Any:
    distinct: list[Any] = []
    for value in values:
        if value not in distinct:
            distinct.append(value)
    if len(distinct) > 1:
        return Mixed(tuple(distinct))
    return distinct[0] if distinct else None


def value_at(obj: Any, path: FieldPath) -> Any:
    """The value at a path; None when there is none."""
    for part in path:
        obj = obj.get(part) if isinstance(obj, dict) else None
    return obj


def argument(obj: Object, name: str) -> Any:
    """The value of `--name=value` among the arguments of a workload's containers; an int if it is one."""
    containers = value_at(obj, ("spec", "template", "spec", "containers")) or []
    for each in (text for container in containers for text in container.get("args") or ()):
        key, _, value = each.partition("=")
        if key == name:
            return int(value) if value.isdecimal() else value
    return None


def holds(knob: Knob, desired: Any, found: list[Any]) -> bool:
    """Whether every end point says what is desired."""
    return all(rendered(end.value, desired) == value for end, value in zip(knob.ends, found, strict=True))


def shown(knob: Knob, found: list[Any]) -> str | None:
    """The values at the end points as one JSON text; None when nothing says anything."""
    # a table that server-side apply left empty says nothing, unless the value itself is a table
    found = [None if value == {} and isinstance(knob.type, dict) else value for value in found]
    if all(value is None for value in found):
        return None
    plain = [list(value.values) if isinstance(value, Mixed) else value for value in found]
    labels = [end.label or _label(end) for end in knob.ends]
    if len(plain) == 1 or all(value == plain[0] for value in plain):
        return text_of(plain[0])
    return text_of(dict(zip(labels, plain, strict=True)))


def _label(end: End) -> str:
    inner = str(end.value)
    if inner.startswith("{") and inner.endswith("}") and inner != "{value}":
        return inner.strip("{}").removesuffix(":text")
    return parts(end.path)[-1] if end.reader == "field" else end.path


def text_of(value: Any) -> str:
    """A value as the tables hold it: JSON, a plain text as it is."""
    return value if isinstance(value, str) else json.dumps(value, sort_keys=True)
