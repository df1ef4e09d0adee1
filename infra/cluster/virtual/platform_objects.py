"""What OpenShift and its operators have on a cluster before a run, as the described cluster is tuned."""

import json
from typing import Any

from infra.cluster.kinds import (
    CONFIG_MAP,
    DEPLOYMENT,
    DESCHEDULER,
    ETCD,
    HYPERCONVERGED,
    INGRESS_CONTROLLER,
    KUBELET_CONFIG,
    KUBEVIRT,
    MACHINE_CONFIG_POOL,
    NAMESPACE,
    SCHEDULER_CONFIG,
    STORAGE_CLUSTER,
    TUNED,
    TUNED_PROFILE,
    Kind,
)
from infra.cluster.port import Object
from infra.cluster.virtual.controllers import node_tuning
from infra.cluster.virtual.controllers.hyperconverged import ANNOTATION, KUBEVIRT_NAME, LIMITED, WELL
from infra.cluster.virtual.controllers.storage_settings import (
    PROVISIONER,
    ROOK_CONFIG,
    ROOK_NAMESPACE,
    side_car_arguments,
)
from infra.cluster.virtual.controllers.virt_config import COMPONENTS, limits
from infra.cluster.virtual.description import Description
from infra.cluster.virtual.nodes import default_settings, initial_settings, rendered_name

VIRT_NAMESPACE = "openshift-cnv"
OPERATOR_NAMESPACES = (
    node_tuning.NAMESPACE,
    ROOK_NAMESPACE,
    "openshift-ingress-operator",
    "openshift-kube-descheduler-operator",
)
POOL_LABEL = "pools.operator.machineconfiguration.openshift.io/worker"
WORKER = {"node-role.kubernetes.io/worker": ""}
STAMP = "2026-01-01T00:00:00Z"


def made(kind: Kind, name: str, namespace: str = "", **fields: Any) -> Object:
    """An object; `meta` goes into its metadata."""
    meta = {"name": name} | ({"namespace": namespace} if namespace else {}) | fields.pop("meta", {})
    return {"apiVersion": kind.api_version, "kind": kind.kind, "metadata": meta, **fields}


def kubevirt_object(description: Description) -> Object:
    """The KubeVirt resource; it says the limits that differ from KubeVirt's own."""
    rates, untuned = description.rates, description.untuned
    said = {
        key: limits(getattr(rates, component))
        for key, component in COMPONENTS.items()
        if getattr(rates, component) != getattr(untuned, component)
    }
    if policy_said(description):
        said = {key: limits(rates.virt_api) for key in LIMITED}
    return made(
        KUBEVIRT,
        KUBEVIRT_NAME,
        VIRT_NAMESPACE,
        spec={"configuration": said},
        status={"phase": "Deployed", "observedKubeVirtVersion": description.kubevirt},
    )


def policy_said(description: Description) -> bool:
    """Whether the described limits come from HCO's tuning policy: it gives all components the same."""
    rates = description.rates
    same = rates.virt_api == rates.virt_controller == rates.virt_handler
    return description.openshift.operators and same and rates.virt_api.qps > 0


def platform_objects(description: Description) -> list[Object]:
    """Everything that OpenShift's operators own; nothing where there are none."""
    if not description.openshift.operators:
        return []
    return [
        *(made(NAMESPACE, name, status={"phase": "Active"}) for name in OPERATOR_NAMESPACES),
        _hyperconverged(description),
        *_machine_config(description),
        *_node_tuning(description),
        *_rook(description),
        made(SCHEDULER_CONFIG, "cluster", spec={"mastersSchedulable": False}),
        made(ETCD, "cluster", spec={"managementState": "Managed"}),
        made(INGRESS_CONTROLLER, "default", "openshift-ingress-operator", spec={"replicas": 2}),
        made(
            DESCHEDULER,
            "cluster",
            "openshift-kube-descheduler-operator",
            spec={"mode": "Predictive", "deschedulingIntervalSeconds": 3600},
        ),
    ]


def _hyperconverged(description: Description) -> Object:
    rate = description.rates.virt_api
    spec: dict[str, Any] = {}
    meta: dict[str, Any] = {}
    if policy_said(description):
        spec["tuningPolicy"] = "annotation"
        meta["annotations"] = {ANNOTATION: json.dumps({"qps": round(rate.qps), "burst": rate.burst})}
    status = {"conditions": _conditions(WELL), "observedGeneration": 1}
    return made(
        HYPERCONVERGED, "kubevirt-hyperconverged", VIRT_NAMESPACE, meta=meta, spec=spec, status=status
    )


def _conditions(states: dict[str, bool]) -> list[Object]:
    return [
        {
            "type": kind,
            "status": str(state),
            "reason": "AsExpected",
            "message": "",
            "lastTransitionTime": STAMP,
        }
        for kind, state in states.items()
    ]


def _machine_config(description: Description) -> list[Object]:
    said = initial_settings(description)
    config = {"name": rendered_name("worker", default_settings(description) | said)}
    workers = description.nodes.workers
    states = {"Updated": True, "Updating": False, "Degraded": False}
    states |= {"NodeDegraded": False, "RenderDegraded": False}
    pool = made(
        MACHINE_CONFIG_POOL,
        "worker",
        meta={"labels": {POOL_LABEL: "", "machineconfiguration.openshift.io/mco-built-in": ""}},
        spec={
            "configuration": config,
            "nodeSelector": {"matchLabels": WORKER},
            "maxUnavailable": description.openshift.max_unavailable,
        },
        status={
            "configuration": config,
            "machineCount": workers,
            "updatedMachineCount": workers,
            "readyMachineCount": workers,
            "unavailableMachineCount": 0,
            "degradedMachineCount": 0,
            "observedGeneration": 1,
            "conditions": _conditions(states),
        },
    )
    spec = {"machineConfigPoolSelector": {"matchLabels": {POOL_LABEL: ""}}, "kubeletConfig": said}
    status = {"conditions": _conditions({"Success": True})}
    return [pool, *([made(KUBELET_CONFIG, "vm-scale", spec=spec, status=status)] if said else [])]


def _node_tuning(description: Description) -> list[Object]:
    where = node_tuning.NAMESPACE
    stock = {"profile": node_tuning.STOCK, "priority": 40, "match": [{"label": next(iter(WORKER))}]}
    profile = {"name": node_tuning.STOCK, "data": "[main]\ninclude=openshift\n"}
    status = {"tunedProfile": node_tuning.STOCK, "conditions": _conditions(node_tuning.APPLIED)}
    return [
        made(TUNED, "default", where, spec={"profile": [profile], "recommend": [stock]}),
        *(
            made(
                TUNED_PROFILE,
                f"worker-{number:03d}",
                where,
                spec={"config": {"tunedProfile": node_tuning.STOCK}},
                status=status,
            )
            for number in range(description.nodes.workers)
        ),
    ]


def _rook(description: Description) -> list[Object]:
    rate, labels = description.rates.provisioner, {"app": PROVISIONER}
    data = {"CSI_KUBE_API_QPS": f"{rate.qps:.1f}", "CSI_KUBE_API_BURST": str(rate.burst)}
    tuned = rate != description.untuned.provisioner
    containers = [
        {"name": name, "image": name, "args": side_car_arguments(rate)}
        for name in ("csi-provisioner", "csi-attacher")
    ]
    spec = {
        "replicas": 2,
        "selector": {"matchLabels": labels},
        "template": {"metadata": {"labels": labels}, "spec": {"containers": containers}},
    }
    return [
        made(CONFIG_MAP, ROOK_CONFIG, ROOK_NAMESPACE, data=data if tuned else {}),
        made(DEPLOYMENT, PROVISIONER, ROOK_NAMESPACE, spec=spec),
        made(
            STORAGE_CLUSTER,
            "ocs-external-storagecluster",
            ROOK_NAMESPACE,
            spec={"resourceProfile": "balanced"},
            status={"phase": "Ready", "lastAppliedResourceProfile": "balanced"},
        ),
    ]
