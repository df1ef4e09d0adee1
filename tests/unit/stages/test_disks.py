"""A disk's boots are counted while it exists: one made anew under its name boots for the first time."""

from tasks.boot_storm import boot_batch
from tasks.clean import clean
from tests.unit.stages.conftest import OpenWorld, profile_of


def test_a_deleted_disk_has_never_booted(open_virtual: OpenWorld) -> None:
    with open_virtual() as world:
        world.run(boot_batch(world, profile_of(), 2))
        machines = world.runtime.plane.machines  # type: ignore[attr-defined]
        assert sorted(machines.dump().values()) == [1, 1]
        world.run(clean(world, profile_of()))
        assert machines.dump() == {}
