"""A kubelet's settings take effect: its client's limit (its room and images are in the node's status)."""

import json

from infra.cluster.kinds import NODE
from infra.cluster.port import Object
from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.nodes import KUBELET, kubelet_rate


class KubeletSettings:
    """Watches the nodes' settings."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        plane.informer(NODE).on_change(self._changed)

    def _changed(self, what: str, obj: Object, before: Object | None) -> None:
        text = _text(obj)
        if what == "DELETED" or not text or (before is not None and _text(before) == text):
            return
        rate = kubelet_rate(json.loads(text))
        self._plane.rates.set("kubelet", rate, instance=obj["metadata"]["name"])


def _text(node: Object) -> str:
    return str((node["metadata"].get("annotations") or {}).get(KUBELET, ""))
