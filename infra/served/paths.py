"""From a request's path to what it is about. Pure."""

from typing import NamedTuple

from infra.cluster.kinds import KINDS, NAMESPACE, Kind
from infra.cluster.port import Ref

_BY_PLURAL = {(kind.api_version, kind.plural): kind for kind in KINDS}
SUBRESOURCES_GROUP, SUBRESOURCES_VERSION = "subresources.kubevirt.io", "v1"
_NAMESPACE_VERBS = ("status", "finalize")


class Target(NamedTuple):
    """A kind's collection (no name), one of its objects, or a subresource of that."""

    kind: Kind
    namespace: str
    name: str
    subresource: str

    @property
    def ref(self) -> Ref:
        """The object that is meant."""
        return Ref(self.kind, self.namespace, self.name)


def target(path: str) -> Target | None:
    """What a path under /api or /apis names; None when nothing is served there."""
    parts = path.strip("/").split("/")
    if parts[0] == "api":
        return _target("/".join(parts[1:2]), parts[2:])
    if parts[0] == "apis":
        return _target("/".join(parts[1:3]), parts[3:])
    return None


def _target(api_version: str, rest: list[str]) -> Target | None:
    namespace = ""
    if rest[:1] == ["namespaces"] and len(rest) > 2 and rest[2] not in _NAMESPACE_VERBS:
        namespace, rest = rest[1], rest[2:]
    if not 1 <= len(rest) <= 3:
        return None
    if api_version == f"{SUBRESOURCES_GROUP}/{SUBRESOURCES_VERSION}":
        api_version = "kubevirt.io/v1"
    kind = _BY_PLURAL.get((api_version, rest[0]))
    if kind is None or (namespace and not kind.namespaced) or (kind is NAMESPACE and namespace):
        return None
    name, subresource = [*rest[1:], "", ""][:2]
    if name and kind.namespaced and not namespace:
        return None
    return Target(kind, namespace, name, subresource)


def is_virt_api(path: str) -> bool:
    """Whether virt-api serves it, and not the API server itself."""
    return path.startswith(f"/apis/{SUBRESOURCES_GROUP}/{SUBRESOURCES_VERSION}/namespaces/")
