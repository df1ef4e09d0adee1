"""The manifest of a run: what was asked, what it stood on, how it ended; real time and cost are here only.

Durations in a manifest are this machine's, seconds on the monotonic clock; instants are UTC.
"""

import hashlib
import json
import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from importlib import metadata
from pathlib import Path
from typing import Any

from infra.errors import ProfileError
from infra.manifests import Disk, Machine, Mark, Source, virtual_machine
from infra.results.manifest import SCHEMA, check_same_profile
from infra.world import World
from tasks.fault_plan import check_faults
from tasks.profile import Profile, profile_hash
from tasks.run import RunRequest
from tasks.surroundings import surroundings

_PACKAGES = ("kubernetes", "polars", "prefect", "pyarrow", "pydantic", "altair")

Manifest = dict[str, Any]


def new_manifest(request: RunRequest, world: World) -> Manifest:
    """What is known before the first stage; what is not known yet is null.

    Raises:
        ProfileError: the fault plan names what the run does not have.
    """
    check_faults(request)
    return {
        "schema": SCHEMA,
        "run_id": request.run_id,
        "world": world.name,
        "cluster": request.cluster,
        "seed": request.seed,
        "faults": request.faults or None,
        "faults_sha256": faults_sha256(request.faults),
        "profile": request.profile.model_dump(mode="json"),
        "profile_sha256": profile_hash(request.profile),
        "versions": {**own_versions(), **world.versions},
        "comparability": comparability(request, world),
        "host": {"cpu_count": os.cpu_count(), "machine": platform.machine(), "system": platform.system()},
        "started_at": now(),
        "world_started_at": world.clock.wall().isoformat(),
        "finished_at": None,
        "verdict": None,
        "reasons": [],
        "objects_left": False,
        "sessions": [],
    }


def comparability(request: RunRequest, world: World) -> dict[str, Any]:
    """The keys that must be equal for two runs to be compared; null: not known."""
    profile, around = request.profile, world.run(surroundings(world, request))
    return {
        "world": world.name,
        "versions": dict(world.versions),
        "tuning": around.tuning,
        "vm": shape(profile),
        "vm_manifest_sha256": manifest_sha256(profile.vm.manifest),
        "golden_image": profile.golden_image.model_dump(mode="json", include={"url", "size_gib"}),
        "golden_sources": profile.golden_image.sources,
        "storage_class": profile.vm.storage_class,
        "volume_binding_mode": around.volume_binding_mode,
        "access_mode": profile.vm.access_mode,
        "volume_mode": profile.vm.volume_mode,
        "namespaces": {"of_vms": 1, "clones_cross": profile.namespace != profile.golden_namespace},
        "caller": around.caller,
        "prober_path": around.prober_path,
        "end_points": {
            "deploy": "deployed",
            "boot": world.guests.steps[-1] if world.guests.steps else "running",
        },
        "background_pods": profile.background_pods,
        "workload": workload(profile),
        "faults": faults_sha256(request.faults),
    }


def shape(profile: Profile) -> dict[str, Any]:
    """What a VM is; without an instance type and a preference there is nothing said of them."""
    found = profile.vm.model_dump(mode="json", include={"cores", "memory_gib", "disk_gib", "network"})
    named = profile.vm.model_dump(mode="json", include={"instance_type", "preference"})
    return found | {key: name for key, name in named.items() if name}


def manifest_sha256(own: dict[str, Any]) -> str:
    """The hash of what a VM's manifest says besides names, marks and values that are keys of their own."""
    disk = Disk(1, "class", "ReadWriteMany", "Block")
    mark = Mark("run", "nonce", "stage")
    machine = Machine(1, 1.0, disk, manifest=own)
    manifest = virtual_machine("vm", "namespace", mark, machine, Source("golden", "source"))
    return hashlib.sha256(json.dumps(manifest, sort_keys=True).encode()).hexdigest()


def workload(profile: Profile) -> dict[str, Any]:
    """What is asked of the cluster: sizes, order, pace, limits; how often it is repeated changes nothing."""
    sections = profile.model_dump(mode="json", include={"deploy", "boot", "io", "latency"})
    return {name: {k: v for k, v in section.items() if k != "repeats"} for name, section in sections.items()}


def own_versions() -> dict[str, str]:
    """Versions of virtscale, Python and the libraries that have a part in the numbers."""
    found = {"virtscale": _version("virtscale"), "python": platform.python_version()}
    return found | {name: _version(name) for name in _PACKAGES}


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "not installed"


def faults_sha256(path: str) -> str | None:
    """The hash of a faults file's content; None without one.

    Raises:
        ProfileError: the file cannot be read.
    """
    if not path:
        return None
    try:
        return hashlib.sha256(Path(path).read_bytes()).hexdigest()
    except OSError as error:
        raise ProfileError(f"--faults {path}: cannot be read: {error.strerror}") from None


def check_same_run(manifest: Mapping[str, Any], request: RunRequest) -> None:
    """A run id belongs to one profile (its stages and thresholds aside), cluster, seed and faults file.

    Raises:
        ProfileError: the run of that id did something else.
    """
    profile = request.profile.model_dump(mode="json")
    check_same_profile(request.run_id, _without_stages(manifest["profile"]), _without_stages(profile))
    asked = {"cluster": request.cluster, "seed": request.seed, "faults_sha256": faults_sha256(request.faults)}
    for name, new in asked.items():
        if manifest[name] != new:
            option = name.removesuffix("_sha256")
            raise ProfileError(
                f"run {request.run_id} was started with another --{option} "
                f"({_told(manifest, option)} then, {_told(request.model_dump(), option)} now); "
                "choose another --run-id"
            )


def _without_stages(profile: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in profile.items() if key not in {"stages", "compare"}}


def _told(options: Mapping[str, Any], name: str) -> str:
    return str(options[name] or "none")


def now() -> str:
    """This moment, UTC, as manifests write it."""
    return datetime.now(UTC).isoformat(timespec="milliseconds")
