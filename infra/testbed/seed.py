"""What a cluster has before any benchmark: storage and snapshot classes, KubeVirt and CDI, their namespaces.

Plain objects, applied once at `up`; nothing acts on them. Nodes and all that changes belong to the virtual
controllers (`virtscale cluster control`). Names are those of the studied cluster, the profiles' defaults.
"""

from typing import Any

from infra.testbed.apply import apply, apply_status
from infra.testbed.state import State

PROVISIONER = "openshift-storage.rbd.csi.ceph.com"
STORAGE_CLASS = "ocs-external-storagecluster-ceph-rbd"
SNAPSHOT_CLASS = "ocs-external-storagecluster-rbdplugin-snapclass"
KUBEVIRT_NAME, KUBEVIRT_NAMESPACE = "kubevirt-kubevirt-hyperconverged", "openshift-cnv"
# The second is where virt-api is registered.
NAMESPACES = (KUBEVIRT_NAMESPACE, "kubevirt")
# The versions whose schemas the CRDs are; there is no operator behind them, and the suffix says so.
KUBEVIRT_VERSION = "v1.6.2+testbed"
CDI_VERSION = "v1.63.1+testbed"

Manifest = dict[str, Any]


def apply_seed(state: State) -> None:
    """Apply everything, namespaces first, and write the status that the operators would."""
    apply(state, [_object("v1", "Namespace", name, {}) for name in NAMESPACES])
    apply(state, [storage_class(), snapshot_class(), storage_profile(), kubevirt(), cdi()])
    apply_status(state, kubevirt())


def storage_class() -> Manifest:
    """The default StorageClass; it binds at once."""
    body = {
        "provisioner": PROVISIONER,
        "reclaimPolicy": "Delete",
        "volumeBindingMode": "Immediate",
        "allowVolumeExpansion": True,
    }
    manifest = _object("storage.k8s.io/v1", "StorageClass", STORAGE_CLASS, body)
    manifest["metadata"]["annotations"] = {"storageclass.kubernetes.io/is-default-class": "true"}
    return manifest


def snapshot_class() -> Manifest:
    """The VolumeSnapshotClass of the same driver."""
    body = {"driver": PROVISIONER, "deletionPolicy": "Delete"}
    return _object("snapshot.storage.k8s.io/v1", "VolumeSnapshotClass", SNAPSHOT_CLASS, body)


def storage_profile() -> Manifest:
    """CDI's StorageProfile of the StorageClass: shared block volumes, cloned by snapshot."""
    claims = [{"accessModes": ["ReadWriteMany"], "volumeMode": "Block"}]
    body = {
        "spec": {"cloneStrategy": "snapshot"},
        "status": {
            "storageClass": STORAGE_CLASS,
            "provisioner": PROVISIONER,
            "cloneStrategy": "snapshot",
            "snapshotClass": SNAPSHOT_CLASS,
            "dataImportCronSourceFormat": "snapshot",
            "claimPropertySets": claims,
        },
    }
    return _object("cdi.kubevirt.io/v1beta1", "StorageProfile", STORAGE_CLASS, body)


def kubevirt() -> Manifest:
    """The KubeVirt resource, as its operator leaves it once deployed."""
    body = {"spec": {}, "status": {"phase": "Deployed", "observedKubeVirtVersion": KUBEVIRT_VERSION}}
    manifest = _object("kubevirt.io/v1", "KubeVirt", KUBEVIRT_NAME, body)
    manifest["metadata"]["namespace"] = KUBEVIRT_NAMESPACE
    return manifest


def cdi() -> Manifest:
    """The CDI resource, as its operator leaves it once deployed."""
    body = {"spec": {}, "status": {"phase": "Deployed", "observedVersion": CDI_VERSION}}
    return _object("cdi.kubevirt.io/v1beta1", "CDI", "cdi", body)


def _object(api_version: str, kind: str, name: str, body: Manifest) -> Manifest:
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": name}, **body}
