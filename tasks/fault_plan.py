"""A fault plan beside the run that it is for: what it names has to be in that run."""

from collections.abc import Iterator

from infra.cluster.virtual.faults import VM_NAME, Fault, load_faults
from infra.errors import ProfileError
from tasks.profile import Batches, Profile
from tasks.run import RunRequest

_SECTION = {"deploy": "deploy", "delete": "deploy", "boot": "boot", "stop": "boot"}
"""The part of the profile that has the batches of a stage."""


def check_faults(request: RunRequest) -> None:
    """Refuse a plan that names what the run does not have.

    Raises:
        ProfileError: an unknown batch, VM or attempt, or a cluster that is no model.
    """
    if not request.faults:
        return
    if not request.spec().is_virtual:
        raise ProfileError(f"--faults {request.faults}: only the virtual cluster takes faults; leave it out")
    for number, fault in enumerate(load_faults(request.faults).fault, 1):
        for problem in _problems(fault, request.profile):
            raise ProfileError(f"faults {request.faults}: fault {number}: {problem}")


def _problems(fault: Fault, profile: Profile) -> Iterator[str]:
    stages = (fault.stage,) if fault.stage else tuple(_SECTION)
    sections: list[Batches] = [getattr(profile, _SECTION[stage]) for stage in stages]
    sizes = sorted({size for section in sections for size in section.batches})
    if fault.batch is not None and fault.batch not in sizes:
        yield f"batch is {fault.batch}; {fault.stage or 'the profile'} has {', '.join(map(str, sizes))}"
    largest = fault.batch or sizes[-1]
    if fault.vms is not None and fault.vms > largest:
        yield f"vms is {fault.vms}; there are {largest} at most"
    for name in fault.vm:
        if not _exists(name, fault, sizes):
            yield f"vm {name} is not in this run; {_range(fault, sizes)}"


def _exists(name: str, fault: Fault, sizes: list[int]) -> bool:
    match = VM_NAME.match(name)
    if match is None or (match["batch"] is None) != (fault.stage == "boot"):
        return False
    size = sizes[-1] if match["batch"] is None else int(match["batch"])
    return size in sizes and int(match["index"]) < size


def _range(fault: Fault, sizes: list[int]) -> str:
    if fault.stage == "boot":
        return f"boot has b-0000 to b-{sizes[-1] - 1:04d}"
    return f"deploy has d{sizes[0]}-0000 to d{sizes[-1]}-{sizes[-1] - 1:04d}"
