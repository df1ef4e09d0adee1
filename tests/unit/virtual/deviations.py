"""Where the virtual controllers deviate from the recordings of the real ones, each with its reason.

The test compares everything else step by step; docs/conformance.md is written from these tables.
"""

from typing import NamedTuple

ONE_WRITE = (
    "the real one writes in two steps what the model writes in one; nothing waits for the step between"
)
KUBELET = "a kubelet's writes between bound and ready, and between guest and containers ended"
TERMINATING = "PodTerminating is written with the guest's end, not a moment before"
ANOTHER = "this recording lacks it; another one, or another VM's, shows it"
CDI_STEP = "lasts one write of CDI's; finalizer and token come together"
CHARGED = "a call of its component for every VM, which nothing waits for"
UNREAD = "nobody that is modelled reads it"


class Deviation(NamedTuple):
    """What is shown in a chapter, of a kind, of the `events`, of `conditions of` or `metadata of` a kind."""

    chapter: str
    of: str
    shown: tuple[str, ...]
    why: str


IMPORT, START, STOP, DELETE, UNSCHEDULABLE = CHAPTERS = (
    "imported",
    "create_and_start",
    "stop_and_delete",
    "delete_running",
    "unschedulable",
)
SHUT_DOWN = (
    "VirtualMachineInstance: Normal ShuttingDown: Signaled Graceful Shutdown",
    "VirtualMachineInstance: Normal Stopped: The VirtualMachineInstance was shut down.",
)
CLONING = (
    "DataVolume: Normal Bound: PVC vm-root Bound",
    "DataVolume: Normal CloneFromSnapshotSourceInProgress: "
    "Creating PVC from snapshot source is in progress (for snapshot golden/snap)",
    "DataVolume: Normal CloneScheduled: Cloning from golden/snap into ns/vm-root scheduled",
    "DataVolume: Normal CloneSucceeded: Successfully cloned from golden/snap into ns/vm-root",
    "DataVolume: Normal NotFound: No PVC found",
    "DataVolume: Normal Pending: PVC vm-root Pending",
    "DataVolume: Normal RebindInProgress: Rebinding PersistentVolumeClaim for DataVolume ns/vm-root",
    "DataVolume: Warning Pending: Clone Pending",
)
STARTING = (
    "VirtualMachine: Normal SuccessfulDataVolumeCreate: Created DataVolume vm-root",
    "VirtualMachineInstance: Normal Created: VirtualMachineInstance defined.",
    "VirtualMachineInstance: Normal Started: VirtualMachineInstance started.",
)
IMPORTING = (
    "DataVolume: Normal Bound: PVC image Bound",
    "DataVolume: Normal ImportInProgress: Import into image in progress",
    "DataVolume: Normal ImportScheduled: Import into image scheduled",
    "DataVolume: Normal ImportSucceeded: Successfully imported into PVC image",
    "DataVolume: Normal NotFound: No PVC found",
    "DataVolume: Normal Pending: Import Successful",
    "DataVolume: Normal Pending: PVC image Pending",
    "PersistentVolumeClaim: Normal CreatedPVCPrimeSuccessfully: PVC Prime created successfully",
    "PersistentVolumeClaim: Normal ImportSucceeded: [prime-UID] : Import Successful",
    "PersistentVolumeClaim: Normal importSucceeded: Successfully imported into image",
)
PRIME = (
    "the image's own claim is bound at once; the real one imports into another claim, whose volume it takes"
)
CONTAINERS_NOT_READY = ("ContainersReady=False Initialized=True PodScheduled=True Ready=False",)
UNREAD_OF_CLAIMS = (
    "cdi.kubevirt.io/allowClaimAdoption",
    "cdi.kubevirt.io/createdForDataVolume",
    "cdi.kubevirt.io/storage.clone.token",
    "cdi.kubevirt.io/storage.condition.running",
    "cdi.kubevirt.io/storage.condition.running.message",
    "cdi.kubevirt.io/storage.condition.running.reason",
    "cdi.kubevirt.io/storage.contentType",
    "cdi.kubevirt.io/storage.extended.clone.token",
    "cdi.kubevirt.io/storage.pod.restarts",
    "cdi.kubevirt.io/storage.populator.progress",
    "cdi.kubevirt.io/storage.preallocation.requested",
    "cdi.kubevirt.io/storage.usePopulator",
    "pv.kubernetes.io/bind-completed",
    "pv.kubernetes.io/bound-by-controller",
    "volume.kubernetes.io/storage-provisioner",
)
UNREAD_OF_VOLUMES = ("cdi.kubevirt.io/allowClaimAdoption", "cdi.kubevirt.io/storage.extended.clone.token")
GATE = "kubevirt.io/virtual-machine-unpaused=True/NotPaused"

LEFT_OUT = [
    Deviation(
        IMPORT, "DV", ("Pending NotFound False False free", "Pending Pending False False free"), CDI_STEP
    ),
    Deviation(
        IMPORT,
        "DV",
        (
            "ImportInProgress Pending TransferRunning Pod is running free",
            "Succeeded Pending True Completed free",
        ),
        PRIME,
    ),
    Deviation(
        IMPORT,
        "conditions of DV",
        ("Bound=False/NotFound Ready=False Running=False", "Bound=False/Pending Ready=False Running=False"),
        CDI_STEP,
    ),
    Deviation(
        IMPORT,
        "conditions of DV",
        (
            "Bound=False/Pending Ready=False/TransferRunning Running=True/Pod is running",
            "Bound=False/Pending Ready=True Running=False/Completed",
        ),
        PRIME,
    ),
    Deviation(IMPORT, "events", IMPORTING, "an import is made once, before anything is measured"),
    Deviation(START, "VM", ("Stopped VMINotExists gen 1",), ONE_WRITE),
    Deviation(
        START,
        "DV",
        (
            "Pending NotFound False False free",
            "Pending NotFound False False held",
            "CloneScheduled Pending False Pending held",
            "Succeeded Pending True Completed held",
            "Succeeded Pending True Completed free",
        ),
        CDI_STEP,
    ),
    Deviation(
        START,
        "conditions of DV",
        (
            "Bound=False/NotFound Ready=False Running=False",
            "Bound=False/Pending Ready=False Running=False/Pending",
            "Bound=False/Pending Ready=True Running=False/Completed",
        ),
        CDI_STEP,
    ),
    Deviation(
        START,
        "PVC",
        ("Pending Pending free", "Pending Pending held", "Pending Succeeded held", "Bound Succeeded held"),
        "clone phase Pending lasts one write of CDI's; the claim is bound before its clone is called done",
    ),
    Deviation(START, "Pod", ("Pending False",), KUBELET),
    Deviation(START, "conditions of Pod", CONTAINERS_NOT_READY, KUBELET),
    Deviation(START, "events", (*CLONING, *STARTING), CHARGED),
    Deviation(START, "metadata of VMI", ("annotation kubevirt.io/pci-topology-version",), UNREAD),
    Deviation(START, "metadata of DV", tuple(f"annotation {key}" for key in UNREAD_OF_VOLUMES), UNREAD),
    Deviation(START, "metadata of PVC", tuple(f"annotation {key}" for key in UNREAD_OF_CLAIMS), UNREAD),
    Deviation(STOP, "VM", ("Stopping PodTerminating created gen 3 observed 3 as Halted",), TERMINATING),
    Deviation(STOP, "VMI", ("Running True held by 2", "Running PodTerminating held by 2 going"), TERMINATING),
    Deviation(STOP, "Pod", ("Succeeded False going",), KUBELET),
    Deviation(STOP, "conditions of Pod", CONTAINERS_NOT_READY, KUBELET),
    Deviation(STOP, "events", SHUT_DOWN, CHARGED),
    Deviation(DELETE, "VMI", ("Running PodTerminating held by 2 going",), TERMINATING),
    Deviation(DELETE, "Pod", ("Succeeded False going",), KUBELET),
    Deviation(DELETE, "conditions of Pod", CONTAINERS_NOT_READY, KUBELET),
    Deviation(DELETE, "events", SHUT_DOWN, CHARGED),
    Deviation(UNSCHEDULABLE, "VM", ("Stopped - gen 2",), "the VM was started before its first condition"),
    Deviation(
        UNSCHEDULABLE,
        "VM",
        ("ErrorUnschedulable PodTerminating created gen 3 observed 3 as Halted",),
        ONE_WRITE,
    ),
    Deviation(
        UNSCHEDULABLE,
        "VMI",
        ("Failed PodTerminating held by 2 going", "Failed PodNotExists held by 1 going"),
        ONE_WRITE,
    ),
    Deviation(UNSCHEDULABLE, "conditions of VM", ("none",), "the VM was started before its first condition"),
    Deviation(
        UNSCHEDULABLE,
        "conditions of VM",
        ("PodScheduled=False/Unschedulable Ready=False/PodTerminating",),
        ONE_WRITE,
    ),
    Deviation(
        UNSCHEDULABLE,
        "conditions of VMI",
        ("PodScheduled=False/Unschedulable Ready=False/PodTerminating",),
        ONE_WRITE,
    ),
    Deviation(UNSCHEDULABLE, "Pod", ("Pending - going",), "a pod that was never bound is gone at once"),
    Deviation(
        UNSCHEDULABLE,
        "conditions of Pod",
        (GATE, f"PodScheduled=False/Unschedulable {GATE}"),
        "pods have no readiness gate of KubeVirt's: nothing is ever paused",
    ),
]
"""The real controllers show it, the model does not."""

MODEL_ONLY = [
    Deviation(IMPORT, "DV", ("ImportInProgress Bound TransferRunning Pod is running free",), PRIME),
    Deviation(
        IMPORT,
        "conditions of DV",
        ("Bound=True/Bound Ready=False/TransferRunning Running=True/Pod is running",),
        PRIME,
    ),
    Deviation(
        IMPORT,
        "events",
        (
            "PersistentVolumeClaim: Normal Provisioning: External provisioner is provisioning volume",
            "PersistentVolumeClaim: Normal ProvisioningSucceeded: pvc-UID",
        ),
        "a stand-in played the storage driver",
    ),
    Deviation(START, "VM", ("Starting VMINotExists gen 2",), ANOTHER),
    Deviation(START, "DV", ("- - - - held", "Succeeded Bound True Completed held"), ANOTHER),
    Deviation(START, "PVC", ("Bound Rebind held",), ANOTHER),
    Deviation(UNSCHEDULABLE, "VM", ("Stopped VMINotExists gen 2",), ANOTHER),
    Deviation(
        UNSCHEDULABLE,
        "VM",
        ("ErrorUnschedulable GuestNotRunning created gen 3 observed 3 as Halted",),
        ANOTHER,
    ),
    Deviation(UNSCHEDULABLE, "VMI", ("Failed PodNotExists held by 2 going",), ONE_WRITE),
    Deviation(
        UNSCHEDULABLE,
        "conditions of Pod",
        ("PodScheduled=False/Unschedulable",),
        "the same condition without the readiness gate",
    ),
]
"""The model shows it, this recording does not."""


class NotPlayed(NamedTuple):
    """A recording that the virtual controllers have no part for; a stage of ours is replayed over most."""

    recording: str
    shows: str
    why: str


NO_CAUSE = "nothing in the model causes it; stages are replayed over the recording"
NOT_ASKED = "no stage asks for it"
NOT_PLAYED = [
    NotPlayed("faults, vm-imgpull", "ErrImagePull, ImagePullBackOff", NO_CAUSE),
    NotPlayed("faults, vm-podfail", "CrashLoopBackOff, a new instance after 10 s and more", NO_CAUSE),
    NotPlayed("faults, vm-guestcrash", "Stopped and Starting again for ever", NO_CAUSE),
    NotPlayed("faults, vm-stuck", "a pod that is never bound: Starting for ever", NO_CAUSE),
    NotPlayed("faults, vm-nopvc", "ErrorPvcNotFound, WaitingForVolumeBinding", NO_CAUSE),
    NotPlayed(
        "cdi_snapshot_clone_wffc",
        "PendingPopulation until a pod selects a node, DataVolumeError for 60 ms",
        "our disks ask for immediate binding; stages are replayed over the recording",
    ),
    NotPlayed(
        "cdi_fallback_copy",
        "HostClone, CloneInProgress, Warning IncompatibleVolumeModes",
        "a copy takes its time and says cloneType copy, no more; stages are replayed over the recording",
    ),
    NotPlayed(
        "cdi_pvc_clone_snapshot_strategy", "clones of claims, csi-clone", "VMs are cloned from snapshots"
    ),
    NotPlayed(
        "cdi_snapshot_clone_same_ns",
        "a clone in the image's namespace; clone phase Error for 60 ms",
        NO_CAUSE,
    ),
    NotPlayed("cdi_golden_import", "prime claims, importer pods", "an import only takes its time"),
    NotPlayed("run_strategies", "Once, Manual, RerunOnFailure, restart, stateChangeRequests", NOT_ASKED),
    NotPlayed("admission_errors", "what the webhooks refuse", "of the webhooks only their time is modelled"),
    NotPlayed(
        "many_10, many_200",
        "words that are skipped under load; 500 for a start that lost a race",
        "Starting and Stopping are skipped as the queue's order has it; every start is answered 202 or 409",
    ),
]
"""What else was recorded."""
