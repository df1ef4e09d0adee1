"""virt-config: KubeVirt's components reload their client limits when the KubeVirt resource changes."""

from typing import Any

from infra.cluster.kinds import KUBEVIRT
from infra.cluster.port import Object
from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.description import Rate

COMPONENTS = {
    "apiConfiguration": "virt_api",
    "controllerConfiguration": "virt_controller",
    "handlerConfiguration": "virt_handler",
}
"""Key of KubeVirt's configuration to the component that it limits; the webhooks' limit holds nobody back."""


def limit_said(obj: Object, key: str) -> Rate | None:
    """The limit that a KubeVirt resource says for a component, if it says one."""
    found: Any = (obj.get("spec") or {}).get("configuration") or {}
    for part in (key, "restClient", "rateLimiter", "tokenBucketRateLimiter"):
        found = found.get(part) or {}
    return Rate(qps=found["qps"], burst=found["burst"]) if found else None


def limits(rate: Rate) -> Object:
    """A component's limit as KubeVirt's configuration says it."""
    bucket = {"qps": rate.qps, "burst": rate.burst}
    return {"restClient": {"rateLimiter": {"tokenBucketRateLimiter": bucket}}}


class VirtConfig:
    """Carries limits from the KubeVirt resource to the components; no restart."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        plane.informer(KUBEVIRT).on_change(self._changed)

    def _changed(self, what: str, obj: Object, _: Object | None) -> None:
        if what == "DELETED":
            return
        for key, component in COMPONENTS.items():
            default = getattr(self._plane.description.untuned, component)
            self._plane.rates.set(component, limit_said(obj, key) or default)
