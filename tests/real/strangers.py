"""VirtualMachines of somebody else beside those of a run."""

import asyncio
import json

from infra.cluster.kinds import VM
from infra.cluster.port import Object, Scope, list_all
from infra.cluster.real import connect
from infra.testbed import apply
from infra.testbed.state import CONTEXT
from tests.real.lab import Lab
from tests.real.manifests import virtual_machine

NEIGHBOURS = "neighbours"
STRANGERS = 1000


def settle_strangers(lab: Lab) -> None:
    """Make them, and remember what they are."""
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NEIGHBOURS}}
    apply.apply(lab.testbed, [space])
    asyncio.run(_made(lab))
    (lab.folder / "strangers").write_text(json.dumps(asyncio.run(_found(lab))))


def changed_strangers(lab: Lab) -> list[str]:
    """Those that are gone, or not what they were."""
    before, now = json.loads((lab.folder / "strangers").read_text()), asyncio.run(_found(lab))
    return [name for name, what in before.items() if now.get(name) != what]


async def _made(lab: Lab) -> None:
    cluster = await connect(CONTEXT, str(lab.testbed.kubeconfig))
    try:
        wanted = [virtual_machine(f"theirs-{i:04d}", NEIGHBOURS) for i in range(STRANGERS)]
        for vm in wanted:
            vm["spec"]["template"]["spec"]["volumes"] = []
            vm["spec"]["template"]["spec"]["domain"]["devices"] = {}
        await asyncio.gather(*map(cluster.create, wanted))
    finally:
        await cluster.close()


async def _found(lab: Lab) -> dict[str, list[str | int]]:
    cluster = await connect(CONTEXT, str(lab.testbed.kubeconfig))
    try:
        return {
            vm["metadata"]["name"]: _what(vm) for vm in (await list_all(cluster, Scope(VM, NEIGHBOURS))).items
        }
    finally:
        await cluster.close()


def _what(vm: Object) -> list[str | int]:
    return [vm["metadata"]["uid"], vm["metadata"]["generation"]]
