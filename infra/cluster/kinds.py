"""The Kubernetes kinds that virtscale touches, and how their APIs differ."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, eq=False)
class Kind:
    """One served kind.

    `status_subresource` is what the real CRDs have: VirtualMachineInstance has none, so its
    status is written by plain patches and every write raises its generation.
    """

    kind: str
    group: str
    version: str
    plural: str
    namespaced: bool = True
    status_subresource: bool = True

    @property
    def api_version(self) -> str:
        """`group/version`, or `v1` for the core group."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def prefix(self) -> str:
        """First part of the REST path, without the namespace."""
        return f"/apis/{self.group}/{self.version}" if self.group else f"/api/{self.version}"

    def __repr__(self) -> str:
        """The kind's name alone: that is how people speak of it."""
        return self.kind


VM = Kind("VirtualMachine", "kubevirt.io", "v1", "virtualmachines")
VMI = Kind("VirtualMachineInstance", "kubevirt.io", "v1", "virtualmachineinstances", status_subresource=False)
KUBEVIRT = Kind("KubeVirt", "kubevirt.io", "v1", "kubevirts")
DATA_VOLUME = Kind("DataVolume", "cdi.kubevirt.io", "v1beta1", "datavolumes")
DATA_SOURCE = Kind("DataSource", "cdi.kubevirt.io", "v1beta1", "datasources", status_subresource=False)
VOLUME_CLONE_SOURCE = Kind(
    "VolumeCloneSource", "cdi.kubevirt.io", "v1beta1", "volumeclonesources", status_subresource=False
)
STORAGE_PROFILE = Kind(
    "StorageProfile",
    "cdi.kubevirt.io",
    "v1beta1",
    "storageprofiles",
    namespaced=False,
    status_subresource=False,
)
CDI = Kind("CDI", "cdi.kubevirt.io", "v1beta1", "cdis", namespaced=False, status_subresource=False)
SNAPSHOT = Kind("VolumeSnapshot", "snapshot.storage.k8s.io", "v1", "volumesnapshots")
SNAPSHOT_CONTENT = Kind(
    "VolumeSnapshotContent", "snapshot.storage.k8s.io", "v1", "volumesnapshotcontents", namespaced=False
)
SNAPSHOT_CLASS = Kind(
    "VolumeSnapshotClass",
    "snapshot.storage.k8s.io",
    "v1",
    "volumesnapshotclasses",
    namespaced=False,
    status_subresource=False,
)
STORAGE_CLASS = Kind(
    "StorageClass", "storage.k8s.io", "v1", "storageclasses", namespaced=False, status_subresource=False
)
VOLUME_ATTACHMENT = Kind("VolumeAttachment", "storage.k8s.io", "v1", "volumeattachments", namespaced=False)
NAMESPACE = Kind("Namespace", "", "v1", "namespaces", namespaced=False)
NODE = Kind("Node", "", "v1", "nodes", namespaced=False)
POD = Kind("Pod", "", "v1", "pods")
PVC = Kind("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims")
PV = Kind("PersistentVolume", "", "v1", "persistentvolumes", namespaced=False)
EVENT = Kind("Event", "", "v1", "events", status_subresource=False)
SECRET = Kind("Secret", "", "v1", "secrets", status_subresource=False)
CONFIG_MAP = Kind("ConfigMap", "", "v1", "configmaps", status_subresource=False)
CONTROLLER_REVISION = Kind(
    "ControllerRevision", "apps", "v1", "controllerrevisions", status_subresource=False
)
DISRUPTION_BUDGET = Kind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets")
ROLE = Kind("Role", "rbac.authorization.k8s.io", "v1", "roles", status_subresource=False)
ROLE_BINDING = Kind(
    "RoleBinding", "rbac.authorization.k8s.io", "v1", "rolebindings", status_subresource=False
)
LEASE = Kind("Lease", "coordination.k8s.io", "v1", "leases", status_subresource=False)
SUBJECT_ACCESS_REVIEW = Kind(
    "SelfSubjectAccessReview",
    "authorization.k8s.io",
    "v1",
    "selfsubjectaccessreviews",
    namespaced=False,
    status_subresource=False,
)

SELF_SUBJECT_REVIEW = Kind(
    "SelfSubjectReview",
    "authentication.k8s.io",
    "v1",
    "selfsubjectreviews",
    namespaced=False,
    status_subresource=False,
)

HYPERCONVERGED = Kind("HyperConverged", "hco.kubevirt.io", "v1beta1", "hyperconvergeds")
KUBELET_CONFIG = Kind(
    "KubeletConfig", "machineconfiguration.openshift.io", "v1", "kubeletconfigs", namespaced=False
)
MACHINE_CONFIG = Kind(
    "MachineConfig",
    "machineconfiguration.openshift.io",
    "v1",
    "machineconfigs",
    namespaced=False,
    status_subresource=False,
)
MACHINE_CONFIG_POOL = Kind(
    "MachineConfigPool", "machineconfiguration.openshift.io", "v1", "machineconfigpools", namespaced=False
)
TUNED = Kind("Tuned", "tuned.openshift.io", "v1", "tuneds")
TUNED_PROFILE = Kind("Profile", "tuned.openshift.io", "v1", "profiles")
NETWORK_POLICY = Kind(
    "NodeNetworkConfigurationPolicy",
    "nmstate.io",
    "v1",
    "nodenetworkconfigurationpolicies",
    namespaced=False,
)
NETWORK_ENACTMENT = Kind(
    "NodeNetworkConfigurationEnactment",
    "nmstate.io",
    "v1beta1",
    "nodenetworkconfigurationenactments",
    namespaced=False,
)
STORAGE_CLUSTER = Kind("StorageCluster", "ocs.openshift.io", "v1", "storageclusters")
SCHEDULER_CONFIG = Kind("Scheduler", "config.openshift.io", "v1", "schedulers", namespaced=False)
DESCHEDULER = Kind("KubeDescheduler", "operator.openshift.io", "v1", "kubedeschedulers")
INGRESS_CONTROLLER = Kind("IngressController", "operator.openshift.io", "v1", "ingresscontrollers")
ETCD = Kind("Etcd", "operator.openshift.io", "v1", "etcds", namespaced=False)
DEPLOYMENT = Kind("Deployment", "apps", "v1", "deployments")
CUSTOM_RESOURCE = Kind(
    "CustomResourceDefinition", "apiextensions.k8s.io", "v1", "customresourcedefinitions", namespaced=False
)
PRIORITY_CLASS = Kind(
    "PriorityClass", "scheduling.k8s.io", "v1", "priorityclasses", namespaced=False, status_subresource=False
)
INSTANCE_TYPE = Kind(
    "VirtualMachineInstancetype",
    "instancetype.kubevirt.io",
    "v1beta1",
    "virtualmachineinstancetypes",
    status_subresource=False,
)
CLUSTER_INSTANCE_TYPE = Kind(
    "VirtualMachineClusterInstancetype",
    "instancetype.kubevirt.io",
    "v1beta1",
    "virtualmachineclusterinstancetypes",
    namespaced=False,
    status_subresource=False,
)
PREFERENCE = Kind(
    "VirtualMachinePreference",
    "instancetype.kubevirt.io",
    "v1beta1",
    "virtualmachinepreferences",
    status_subresource=False,
)
CLUSTER_PREFERENCE = Kind(
    "VirtualMachineClusterPreference",
    "instancetype.kubevirt.io",
    "v1beta1",
    "virtualmachineclusterpreferences",
    namespaced=False,
    status_subresource=False,
)
ATTACHED_NETWORK = Kind(
    "NetworkAttachmentDefinition",
    "k8s.cni.cncf.io",
    "v1",
    "network-attachment-definitions",
    status_subresource=False,
)

KINDS: tuple[Kind, ...] = (
    VM,
    VMI,
    KUBEVIRT,
    DATA_VOLUME,
    DATA_SOURCE,
    VOLUME_CLONE_SOURCE,
    STORAGE_PROFILE,
    CDI,
    SNAPSHOT,
    SNAPSHOT_CONTENT,
    SNAPSHOT_CLASS,
    STORAGE_CLASS,
    VOLUME_ATTACHMENT,
    NAMESPACE,
    NODE,
    POD,
    PVC,
    PV,
    EVENT,
    SECRET,
    CONFIG_MAP,
    CONTROLLER_REVISION,
    DISRUPTION_BUDGET,
    ROLE,
    ROLE_BINDING,
    LEASE,
    SUBJECT_ACCESS_REVIEW,
    SELF_SUBJECT_REVIEW,
    HYPERCONVERGED,
    KUBELET_CONFIG,
    MACHINE_CONFIG,
    MACHINE_CONFIG_POOL,
    TUNED,
    TUNED_PROFILE,
    NETWORK_POLICY,
    NETWORK_ENACTMENT,
    STORAGE_CLUSTER,
    SCHEDULER_CONFIG,
    DESCHEDULER,
    INGRESS_CONTROLLER,
    ETCD,
    DEPLOYMENT,
    CUSTOM_RESOURCE,
    PRIORITY_CLASS,
    ATTACHED_NETWORK,
    INSTANCE_TYPE,
    CLUSTER_INSTANCE_TYPE,
    PREFERENCE,
    CLUSTER_PREFERENCE,
)

_BY_NAME = {(kind.api_version, kind.kind): kind for kind in KINDS}


def kind_of(api_version: str, kind: str) -> Kind:
    """Look a kind up by the two fields every object carries.

    Raises:
        KeyError: virtscale does not know that kind.
    """
    return _BY_NAME[api_version, kind]
