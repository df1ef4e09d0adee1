"""What virt-controller makes of an instance type: its CPUs and memory, in the VMI that it makes of a VM.

Preferences say how devices look, which nothing here depends on. KubeVirt's admission refuses a VM that names
what is not there; here such a VM has the sizes of its template.
"""

from infra.cluster.kinds import CLUSTER_INSTANCE_TYPE, INSTANCE_TYPE
from infra.cluster.port import Cluster, Object, Ref
from infra.errors import NotFound


async def sized(api: Cluster, vm: Object) -> Object:
    """The spec of a VM's instance."""
    template: Object = vm["spec"]["template"]["spec"]
    named = vm["spec"].get("instancetype")
    if not named:
        return template
    is_namespaced = named.get("kind") == INSTANCE_TYPE.kind
    kind, place = (
        (INSTANCE_TYPE, vm["metadata"]["namespace"]) if is_namespaced else (CLUSTER_INSTANCE_TYPE, "")
    )
    try:
        found = await api.get(Ref(kind, place, named["name"]))
    except NotFound:
        return template
    sizes = found["spec"]
    cpu, memory = {"cores": sizes["cpu"]["guest"]}, {"guest": sizes["memory"]["guest"]}
    return {**template, "domain": {**template["domain"], "cpu": cpu, "memory": memory}}
