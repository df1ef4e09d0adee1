"""The golden image may be cloned from the VMs' namespace: virt-controller asks for that right."""

from infra.cluster.kinds import ROLE_BINDING
from infra.cluster.port import Ref, Scope
from infra.world import World
from tasks.clean import clean
from tasks.golden_image import golden_image
from tests.unit.stages.conftest import OpenWorld, profile_of


def bindings(world: World) -> list[str]:
    found = world.run(world.cluster.list(Scope(ROLE_BINDING)))
    return [item["metadata"]["name"] for item in found.items]


def test_the_vms_service_account_may_clone_and_the_right_goes_with_the_run(open_virtual: OpenWorld) -> None:
    profile = profile_of()
    with open_virtual() as world:
        world.run(golden_image(world, profile))
        binding = world.run(world.cluster.get(Ref(ROLE_BINDING, profile.golden_namespace, "golden-cloners")))
        account = {"kind": "ServiceAccount", "name": "default", "namespace": profile.namespace}
        assert binding["subjects"] == [account]
        world.run(clean(world, profile))
        assert bindings(world) == []


def test_one_namespace_for_both_needs_no_right(open_virtual: OpenWorld) -> None:
    profile = profile_of(golden_namespace="virtscale")
    with open_virtual() as world:
        world.run(golden_image(world, profile))
        assert bindings(world) == []
