"""Runs for the proofs of `compare`: the real pipeline in process, as few stages as measure something."""

import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

import tomli_w

from flows.study import conduct, finished_before
from infra.cluster.virtual.description import Description, load_description
from tasks.profile import load_profile, with_stages
from tasks.run import RunRequest

WORKERS = 24
"""Of the study's 129: enough for 80 VMs, and a world of fewer objects opens faster."""


class Plan(NamedTuple):
    """What one run of a proof is: profile `small`, its sizes unless others are named (`20,40`).

    `slower` multiplies how long a restore holds the snapshot's lock.
    """

    seed: int
    repeats: int = 1
    stages: tuple[str, ...] = ("golden-image", "deploy", "boot")
    slower: float = 1.0
    sizes: str = ""

    @property
    def run_id(self) -> str:
        """Says what was run."""
        what = "".join(stage[0] for stage in self.stages)
        return f"{what}-r{self.repeats}-x{round(self.slower * 100)}-s{self.seed}"


def measured(store: Path, plan: Plan) -> str:
    """Run it, unless the store has it already; returns the run id."""
    sets = [f"{stage}.repeats={plan.repeats}" for stage in ("deploy", "boot")]
    sets += [f"{stage}.batches={plan.sizes}" for stage in ("deploy", "boot") if plan.sizes]
    request = RunRequest(
        run_id=plan.run_id,
        profile=with_stages(load_profile("small", sets), plan.stages),
        cluster=cluster(store, plan.slower),
        store=str(store / plan.run_id),
        seed=plan.seed,
        keep=True,
    )
    if finished_before(request) is None:
        conduct(request)
    return plan.run_id


def cluster(folder: Path, slower: float) -> str:
    """The study's cluster with fewer workers, as a file; a restore takes `slower` times as long."""
    path = folder / f"restore-x{round(slower * 100)}.toml"
    usual: Description = load_description("study")
    slow: Mapping[str, Any] = {
        "name": "study",
        "nodes": {"workers": WORKERS},
        "csi": {"restore_s": usual.csi.restore_s * slower},
    }
    draft = path.with_name(f"{path.name}.{os.getpid()}")
    draft.write_text(tomli_w.dumps(slow), encoding="utf-8")
    draft.replace(path)
    return f"virtual:{path}"
