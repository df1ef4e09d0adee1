"""Storage operators: StorageProfiles, the CSI provisioner's own limits, the StorageCluster's profile."""

from typing import Any

from infra.cluster.kinds import CONFIG_MAP, DEPLOYMENT, STORAGE_CLUSTER, STORAGE_PROFILE
from infra.cluster.port import Object, Ref
from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.description import Rate
from infra.cluster.virtual.informer import Key

ROOK_NAMESPACE, ROOK_CONFIG = "openshift-storage", "rook-ceph-operator-config"
PROVISIONER = "csi-rbdplugin-provisioner"
QPS, BURST = "--kube-api-qps", "--kube-api-burst"
COPY = "copy"
CHOICES = ("cloneStrategy", "dataImportCronSourceFormat", "snapshotClass")


def strategies(spec: Object, snapshot_class: str) -> Object:
    """What CDI makes of a StorageProfile of ceph-csi: its own choice where the spec says nothing."""
    own = {
        "cloneStrategy": "csi-clone",
        "dataImportCronSourceFormat": "snapshot",
        "snapshotClass": snapshot_class,
    }
    return own | {key: spec[key] for key in CHOICES if key in spec}


def side_car_arguments(rate: Rate) -> list[str]:
    """A CSI side-car's client limit on its command line."""
    return [f"{QPS}={rate.qps:g}", f"{BURST}={rate.burst}"]


class StorageSettings:
    """What storage resources say takes effect."""

    def __init__(self, plane: ControlPlane) -> None:
        self._plane = plane
        self._api = plane.client(Rate(qps=0, burst=0))
        self._profiles = plane.informer(STORAGE_PROFILE)
        self._configs = plane.informer(CONFIG_MAP)
        self._clusters = plane.informer(STORAGE_CLUSTER)
        self._profile_queue = plane.queue(self._profile, 1, "storage profiles")
        self._config_queue = plane.queue(self._config, 1, "rook")
        self._cluster_queue = plane.queue(self._cluster, 1, "ocs-operator")
        self._profiles.on_change(self._profile_changed)
        self._configs.on_change(self._config_changed)
        self._clusters.on_change(self._cluster_changed)
        plane.informer(DEPLOYMENT).on_change(self._deployment_changed)

    def _profile_changed(self, what: str, obj: Object, before: Object | None) -> None:
        copied, name = self._plane.copied_classes, obj["metadata"]["name"]
        copied.discard(name)
        if what != "DELETED" and (obj.get("status") or {}).get("cloneStrategy") == COPY:
            copied.add(name)
        if what != "DELETED" and (before is None or obj.get("spec") != before.get("spec")):
            self._profile_queue.add(("", obj["metadata"]["name"]))

    async def _profile(self, key: Key) -> None:
        await self._plane.clock.sleep(self._plane.description.openshift.reconcile_s)
        obj = self._profiles.cache.get(key)
        if obj is None:
            return
        status = strategies(obj.get("spec") or {}, self._plane.description.snapshot_class)
        if not status.items() <= (obj.get("status") or {}).items():
            await self._api.patch(Ref(STORAGE_PROFILE, *key), {"status": status})

    def _config_changed(self, what: str, obj: Object, before: Object | None) -> None:
        meta = obj["metadata"]
        if (meta["namespace"], meta["name"]) == (ROOK_NAMESPACE, ROOK_CONFIG) and what != "DELETED":
            self._config_queue.add((ROOK_NAMESPACE, ROOK_CONFIG))

    async def _config(self, key: Key) -> None:
        """Rook rolls the provisioner's pods with new arguments."""
        ref = Ref(DEPLOYMENT, ROOK_NAMESPACE, PROVISIONER)
        data = (self._configs.cache.get(key) or {}).get("data") or {}
        default = self._plane.description.untuned.provisioner
        rate = Rate(
            qps=float(data.get("CSI_KUBE_API_QPS", default.qps)),
            burst=int(data.get("CSI_KUBE_API_BURST", default.burst)),
        )
        found = await self._api.get(ref)
        if rate == limit_of(found):
            return
        await self._plane.clock.sleep(self._plane.description.openshift.restart_s)
        containers: list[Any] = [
            {**each, "args": side_car_arguments(rate)}
            for each in found["spec"]["template"]["spec"]["containers"]
        ]
        await self._api.patch(ref, {"spec": {"template": {"spec": {"containers": containers}}}})

    def _deployment_changed(self, what: str, obj: Object, _: Object | None) -> None:
        if obj["metadata"]["name"] == PROVISIONER and what != "DELETED":
            for component in ("provisioner", "attacher"):
                self._plane.rates.set(component, limit_of(obj))

    def _cluster_changed(self, what: str, obj: Object, before: Object | None) -> None:
        if what != "DELETED" and (before is None or obj["spec"] != before["spec"]):
            self._cluster_queue.add((obj["metadata"]["namespace"], obj["metadata"]["name"]))

    async def _cluster(self, key: Key) -> None:
        await self._plane.clock.sleep(self._plane.description.openshift.reconcile_s)
        obj = self._clusters.cache.get(key) or {"spec": {}}
        wanted = obj["spec"].get("resourceProfile") or "balanced"
        if (obj.get("status") or {}).get("lastAppliedResourceProfile") != wanted:
            status = {"lastAppliedResourceProfile": wanted}
            await self._api.patch(Ref(STORAGE_CLUSTER, *key), {"status": status}, subresource="status")


def limit_of(deployment: Object) -> Rate:
    """The client limit on the provisioner's command line."""
    containers = deployment["spec"]["template"]["spec"]["containers"]
    said = dict(argument.partition("=")[::2] for argument in containers[0].get("args") or ())
    return Rate(qps=float(said[QPS]), burst=int(said[BURST]))
