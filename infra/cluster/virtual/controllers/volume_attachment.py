"""Volume attachment: the attach/detach controller and external-attacher with its few workers.

kubernetes#84169: with more than 1,300 attachments in progress at once, attaching becomes slow,
and recovers only below 500. That is a regime with two thresholds here; how much slower is an
assumption of the description.
"""

from infra.cluster.kinds import POD, PVC, VOLUME_ATTACHMENT
from infra.cluster.port import Cluster, Object, Ref
from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.informer import Key
from infra.errors import AlreadyExists

FINALIZER = "external-attacher/openshift-storage-rbd-csi-ceph-com"


class Overload:
    """Whether too many attachments are in progress: on above one threshold, off below another."""

    def __init__(self, above: int, below: int, factor: float) -> None:
        self._above, self._below, self._factor = above, below, factor
        self._on = False

    def slowdown(self, in_progress: int) -> float:
        """How many times slower an attachment is now."""
        if in_progress > self._above:
            self._on = True
        elif in_progress < self._below:
            self._on = False
        return self._factor if self._on else 1.0


class Attachments:
    """One VolumeAttachment per volume of a placed pod."""

    def __init__(self, plane: ControlPlane, api: Cluster) -> None:
        self._plane = plane
        self._api = api
        self._attacher = plane.rates.client("attacher")
        self._claims = plane.informer(PVC).cache
        self._cache = plane.informer(VOLUME_ATTACHMENT).cache
        self._wanted: dict[Key, list[str]] = {}
        attach = plane.description.attach
        self._attach = attach
        self._in_progress: set[str] = set()
        self._overload = Overload(attach.overload_above, attach.overload_below, attach.overload_factor)
        self.queue = plane.queue(self._handle, attach.workers, "attacher")
        plane.informer(POD).on_change(self._pod_changed)
        plane.informer(VOLUME_ATTACHMENT).on_change(self._attachment_changed)

    def _pod_changed(self, what: str, obj: Object, _: Object | None) -> None:
        meta = obj["metadata"]
        key = (meta["namespace"], meta["name"])
        if what == "DELETED":
            for name in self._wanted.pop(key, ()):
                self._plane.spawn(self._detach(name), f"detach {name}")
        elif obj["spec"].get("nodeName") and obj["spec"].get("volumes") and key not in self._wanted:
            self._wanted[key] = names = []
            for name in claims_of(obj):
                claim = self._claims.get((key[0], name))
                if claim is not None and claim["spec"].get("volumeName"):
                    names.append(attachment_name(claim["spec"]["volumeName"]))
                    self._begin(claim["spec"]["volumeName"], obj["spec"]["nodeName"])

    def _begin(self, volume: str, node: str) -> None:
        name = attachment_name(volume)
        if ("", name) not in self._cache:
            self._plane.spawn(self._create(name, volume, node), f"attach {name}")

    async def _create(self, name: str, volume: str, node: str) -> None:
        attachment = {
            "apiVersion": VOLUME_ATTACHMENT.api_version,
            "kind": VOLUME_ATTACHMENT.kind,
            "metadata": {"name": name, "finalizers": [FINALIZER]},
            "spec": {
                "attacher": self._plane.description.provisioner,
                "nodeName": node,
                "source": {"persistentVolumeName": volume},
            },
        }
        try:
            await self._api.create(attachment)
        except AlreadyExists:
            return

    async def _detach(self, name: str) -> None:
        await self._api.delete(Ref(VOLUME_ATTACHMENT, "", name))

    def _attachment_changed(self, what: str, obj: Object, _: Object | None) -> None:
        name = obj["metadata"]["name"]
        if what == "DELETED":
            self._in_progress.discard(name)
            return
        attached = obj.get("status", {}).get("attached")
        if attached:
            self._in_progress.discard(name)
        else:
            self._in_progress.add(name)
        if not attached or "deletionTimestamp" in obj["metadata"]:
            self.queue.add(("", name))

    async def _handle(self, key: Key) -> None:
        attachment = self._cache.get(key)
        if attachment is None:
            return
        ref = Ref(VOLUME_ATTACHMENT, "", key[1])
        if "deletionTimestamp" in attachment["metadata"]:
            await self._plane.clock.sleep(self._attach.detach_s)
            await self._attacher.patch(ref, {"metadata": {"finalizers": None}})
        elif not attachment.get("status", {}).get("attached"):
            slower = self._overload.slowdown(len(self._in_progress)) if self._attach.overload else 1.0
            await self._plane.clock.sleep(self._attach.attach_s * slower)
            await self._attacher.patch(ref, {"status": {"attached": True}}, subresource="status")


def claims_of(pod: Object) -> list[str]:
    """The claims that a pod mounts; volumes of other kinds need no attachment."""
    sources = (volume.get("persistentVolumeClaim") for volume in pod["spec"].get("volumes") or ())
    return [source["claimName"] for source in sources if source]


def attachment_name(volume: str) -> str:
    """The VolumeAttachment of a PersistentVolume (upstream hashes driver, node and volume)."""
    return f"csi-{volume}"
