"""The study's figures: `virtscale run` on the virtual cluster, and what its results say."""

import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from typing import Any

import polars as pl
import tomli_w

from infra.cluster.virtual.description import load_description
from infra.errors import ProfileError
from infra.results.manifest import read_manifest
from infra.results.open import open_store
from infra.results.read import scan
from tasks.analysis.answers import balances
from tasks.analysis.curves import curve
from tasks.analysis.doubling import Point, bend
from tasks.analysis.placement import Balance
from tasks.profile import STUDY_SIZES
from tasks.records import TABLES
from tests.benchmarks.fidelity_rows import Figure, Row, at_least, at_most, between, same

ROOT = Path(__file__).parents[2]
DEGRADED = 3
"""Exit code of a run whose verdict is not valid: an overloaded cluster may well be what was asked for."""
STUDY = "reference study"
DEPLOYED = "near-linear: each batch about twice the one before"
BOOTED = "near-linear up to 1,600"
BENT = "visible deviation at 3,200"


@dataclass(frozen=True)
class Study:
    """What one run measured: end to end of every batch, placement of the largest storm.

    `instances_s`: storm to the time after which every VM of it had an instance.
    """

    deploys: list[Point]
    boots: list[Point]
    placement: Balance | None
    instances_s: Mapping[int, float]

    def deploy_s(self, n: int) -> float | None:
        """Seconds of a deploy batch; None when it is not there or was not complete."""
        return _time_of(self.deploys, n)

    def boot_s(self, n: int) -> float | None:
        """Seconds of a boot storm."""
        return _time_of(self.boots, n)

    def instances_per_s(self, n: int) -> float | None:
        """Instances made per second in a boot storm."""
        return n / self.instances_s[n] if n in self.instances_s else None


def _time_of(points: Sequence[Point], n: int) -> float | None:
    return next((point.t_s for point in points if point.n == n), None)


def measure(store: Path, run_id: str, seed: int, changed: Mapping[str, Any], sets: Sequence[str]) -> Study:
    """Run the study in a process of its own on preset `study` with some constants `changed` (part.name).

    Raises:
        subprocess.CalledProcessError: the run failed; what it said has been printed.
    """
    cluster = changed_cluster(store, run_id, changed)
    stages = ["preflight", "golden-image", "boot"]
    stages += ["deploy"] if _has_deploys(sets) else []
    stages += ["tuning"] if any(each.startswith("tuning.") for each in sets) else []
    options = {"profile": "study", "stages": ",".join(stages), "cluster": cluster, "seed": str(seed)}
    options |= {"store": str(store), "run-id": run_id}
    command = [sys.executable, "-m", "flows", "run", "--no-prefect", "--keep"]
    command += [part for name, value in options.items() for part in (f"--{name}", value)]
    command += [part for each in sets for part in ("--set", each)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    if done.returncode not in (0, DEGRADED):
        print(done.stderr, file=sys.stderr)
        done.check_returncode()
    return read_study(str(store), run_id)


def changed_cluster(store: Path, run_id: str, changed: Mapping[str, Any]) -> str:
    """The name of a cluster that is preset `study` with some constants changed."""
    if not changed:
        return "virtual:study"
    path = store / f"{run_id}.toml"
    path.write_text(tomli_w.dumps(changed_description("study", changed)))
    return f"virtual:{path}"


def _has_deploys(sets: Sequence[str]) -> bool:
    return not sets or any(each.startswith("deploy.") for each in sets)


def changed_description(preset: str, changed: Mapping[str, Any]) -> dict[str, Any]:
    """A preset's values with some of them changed; keys are `part.name` or `name`."""
    values = load_description(preset).model_dump()
    for key, value in changed.items():
        *parts, name = key.split(".")
        section = values
        for part in parts:
            section = section[part]
        if name not in section:
            raise KeyError(key)
        section[name] = value
    return values


def read_study(store: str, run_id: str) -> Study:
    """What a run in a store measured."""
    opened = open_store(store, writable=False)
    batches = scan(opened, run_id, "batches", TABLES["batches"])
    placed = balances(scan(opened, run_id, "placements", TABLES["placements"]))
    vms = scan(opened, run_id, "vm_boots", TABLES["vm_boots"])
    made = dict(vms.group_by("batch").agg(pl.col("vmi_created_s").max()).iter_rows())
    placement = placed[-1][1] if placed else None
    return Study(curve(batches, "deploy"), curve(batches, "boot"), placement, made)


def finished_seed(store: str, run_id: str) -> int:
    """The seed of a finished run that may stand for the study.

    Raises:
        ProfileError: there is no such run, or it is not the study from one source on its preset.
    """
    manifest = read_manifest(open_store(store, writable=False), run_id)
    if manifest is None:
        raise ProfileError(f"--run-id {run_id}: store {store} has no such run")
    profile = manifest["profile"]
    sizes = {tuple(profile[stage]["batches"]) for stage in ("deploy", "boot")}
    is_study = manifest["versions"].get("preset") == "study" and sizes == {STUDY_SIZES}
    if not is_study or profile["golden_image"]["sources"] != 1 or manifest["faults"]:
        raise ProfileError(f"--run-id {run_id}: not a run of profile study, one source, on virtual:study")
    return int(manifest["seed"])


def study_rows(study: Study, images: Study) -> list[Row]:
    """Preset `study`; `images` is the same cluster with nodeStatusMaxImages left at 50."""
    whole = study.deploy_s(6000)
    what = "deploy of 6,000 VMs"
    rows = [between(_study(what, "within 40 min"), whole and whole / 60, 36, 44, "min")]
    for a, b in pairwise(n for n in STUDY_SIZES if n <= 3200):
        rows.append(
            between(_study(f"deploy t({b:,})/t({a:,})", DEPLOYED), _ratio(study.deploys, a, b), 1.7, 2.3)
        )
    rows += _storm_rows(study)
    rows += _placement_rows(study, images)
    return rows


def _study(what: str, published: str) -> Figure:
    return Figure(what, published, STUDY, "study")


def _ratio(points: Sequence[Point], a: int, b: int) -> float | None:
    first, second = _time_of(points, a), _time_of(points, b)
    return second / first if first and second else None


def _storm_rows(study: Study) -> list[Row]:
    rows: list[Row] = []
    for a, b in pairwise(n for n in STUDY_SIZES if n <= 1600):
        figure, ratio = _study(f"boot t({b:,})/t({a:,})", BOOTED), _ratio(study.boots, a, b)
        rows.append(at_most(figure, ratio, 2.15) if a < 400 else between(figure, ratio, 1.5, 2.15))
    rows.append(at_least(_study("boot t(3,200)/t(1,600)", BENT), _ratio(study.boots, 1600, 3200), 2.3))
    rows.append(
        same(_study("boot: where it bends, by the analysis", BENT), bracket_of(study), "(1,600, 3,200]")
    )
    return rows


def bracket_of(study: Study) -> str:
    """The bracket in which the boot curve stops being linear."""
    found = bend(study.boots)
    return f"({found.above:,}, {found.up_to:,}]" if found else "none"


def _placement_rows(study: Study, images: Study) -> list[Row]:
    mean, cv = _spread(study)
    _, uneven = _spread(images)
    what = "6,000 VMs on 129 nodes"
    return [
        between(_study(f"{what}, mean of a node", "46.5 (derived)"), mean, 46.45, 46.55),
        at_most(_study(f"{what}, CV", "“balanced”"), cv, 0.10),
        at_least(
            _study(f"{what}, CV, nodeStatusMaxImages left at 50", "unbalanced (BZ#1984442)"),
            uneven,
            0.25,
        ),
    ]


def _spread(study: Study) -> tuple[float | None, float | None]:
    """Mean and CV of VMs per node."""
    placed = study.placement
    return (placed.mean, placed.cv) if placed else (None, None)


def switch_rows(off: Study) -> list[Row]:
    """What is left of the study's shapes with restore lock and attach overload off."""
    whole = off.deploy_s(6000)
    lock = Figure("deploy of 6,000 VMs", "within 40 min", "csi.restore_lock = false", "study")
    overload = "attach.overload = false"
    ratio = Figure("boot t(3,200)/t(1,600)", "at least 2.3", overload, "study")
    bends = Figure("boot: where it bends, by the analysis", "(1,600, 3,200]", overload, "study")
    return [
        at_most(lock, whole and whole / 60, 20, "min"),
        between(ratio, _ratio(off.boots, 1600, 3200), 1.5, 2.15),
        same(bends, bracket_of(off), "none"),
    ]
