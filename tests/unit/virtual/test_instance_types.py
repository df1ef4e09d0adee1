"""virt-controller gives the instance of a VM the sizes of its instance type."""

import asyncio

import pytest

from infra.cluster.port import Object, Ref
from infra.cluster.virtual.controllers.instance_types import sized
from infra.errors import NotFound

GIVES = {"cpu": {"guest": 4}, "memory": {"guest": "8Gi"}}
DOMAIN: Object = {"devices": {"disks": []}}


class OneType:
    """Knows one instance type, by kind, namespace and name."""

    def __init__(self, *there: str) -> None:
        self._there = there

    async def get(self, ref: Ref) -> Object:
        if (ref.kind.kind, ref.namespace, ref.name) != self._there:
            raise NotFound(str(ref))
        return {"spec": GIVES}


def vm(**spec: Object) -> Object:
    return {"metadata": {"namespace": "vms"}, "spec": {"template": {"spec": {"domain": DOMAIN}}, **spec}}


@pytest.mark.parametrize(
    ("named", "domain"),
    [
        (None, DOMAIN),
        ({"name": "u1"}, {**DOMAIN, "cpu": {"cores": 4}, "memory": {"guest": "8Gi"}}),
        ({"name": "u2"}, DOMAIN),
        ({"kind": "VirtualMachineInstancetype", "name": "u1"}, DOMAIN),
    ],
)
def test_an_instance_has_the_sizes_of_its_type(named: Object | None, domain: Object) -> None:
    api = OneType("VirtualMachineClusterInstancetype", "", "u1")
    made = vm(**({"instancetype": named} if named else {}))
    assert asyncio.run(sized(api, made))["domain"] == domain  # type: ignore[arg-type]
