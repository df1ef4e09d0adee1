"""Pods that the cluster's own rules refuse are told in the rules' words, and tried again."""

from typing import Any

import pytest

from infra.cluster.kinds import POD
from infra.cluster.port import Object
from infra.cluster.virtual.api import VirtualClient
from infra.errors import Denied
from tasks.boot_storm import boot_batch
from tests.unit.stages.conftest import OpenWorld, profile_of, rows

PROFILE = profile_of(boot={"batches": [2], "limit_s": 60})
WORDS = 'is forbidden: violates PodSecurity "restricted:latest": allowPrivilegeEscalation != false'


def test_a_vm_whose_pod_is_denied_is_a_timeout_in_the_servers_words(
    open_virtual: OpenWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    create, denied = VirtualClient.create, [0]

    async def ruled(self: VirtualClient, obj: Object, **options: Any) -> Object:
        name = obj["metadata"]["name"]
        if obj["kind"] == POD.kind and name.startswith("virt-launcher-t1-b-0001"):
            denied[0] += 1
            raise Denied(f'create Pod {name}: 403 pods "{name}" {WORDS}')
        return await create(self, obj, **options)

    with open_virtual() as world:
        monkeypatch.setattr(VirtualClient, "create", ruled)
        world.run(boot_batch(world, PROFILE, 2))
        well, ill = rows(world, "vm_boots")
        assert (well["state"], ill["state"], ill["reason"]) == ("ok", "timeout", "vm_not_ok")
        assert ill["detail"].startswith(
            "VirtualMachine Starting: failed to create virtual machine pod: create"
        )
        assert WORDS in ill["detail"]
        assert denied[0] > 3
        monkeypatch.setattr(VirtualClient, "create", create)
        world.run(boot_batch(world, PROFILE, 2, repeat=2))
        assert {row["state"] for row in rows(world, "vm_boots") if row["repeat"] == 2} == {"ok"}
