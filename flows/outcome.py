"""How a run ended: what the manifest keeps of it and what the last lines of the command say."""

import os
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from flows.cost import cpu_s, peak_rss_mib
from flows.steps import Step
from infra.results.port import ObjectStore
from tasks.report_stage import judged, measured_tables, report_key, run_verdict
from tasks.run_manifest import Manifest, now

EXIT_CODES = {"valid": 0, "degraded": 3, "invalid": 3, None: 0}


@dataclass(frozen=True, slots=True)
class Outcome:
    """The end of a run. `verdict` is None when nothing was measured, `report` when none was written.

    `objects_left`: None when the run created nothing or it is not known.
    """

    run_id: str
    verdict: str | None
    reasons: tuple[str, ...]
    report: str | None
    elapsed_s: float
    peak_rss_mib: float
    objects_left: bool | None = None

    @property
    def exit_code(self) -> int:
        """0, or 3 when the verdict is degraded or invalid."""
        return EXIT_CODES[self.verdict]

    def as_json(self) -> dict[str, Any]:
        """The object that `--json` prints."""
        return {
            "run_id": self.run_id,
            "verdict": self.verdict,
            "reasons": list(self.reasons),
            "report": self.report,
            "elapsed_s": self.elapsed_s,
            "peak_rss_mib": self.peak_rss_mib,
        }


def alone() -> None:
    """Nobody else can be on a cluster in this process."""


@dataclass(slots=True)
class Session:
    """What one process does for a run: real seconds and cost of this machine.

    `still_alone` raises when the cluster is no longer held for this run; `was_displaced`: another process
    works on the run now.
    """

    still_alone: Callable[[], None] = alone

    started_at: str = field(default_factory=now)
    began_s: float = field(default_factory=time.monotonic)
    began_cpu_s: float = field(default_factory=cpu_s)
    steps: int = 0
    at: Step | None = None
    """The step that is being taken, or was last."""
    objects_left: bool | None = None
    was_displaced: bool = False
    peak_together_mib: float = 0.0

    def begun(self, step: Step) -> None:
        """Note what a step does to the cluster from its first moment on."""
        if step.stage not in {"preflight", "report"}:
            self.objects_left = True

    def done(self, step: Step) -> None:
        """Note that a step is finished."""
        self.steps += 1
        if step.stage == "clean":
            self.objects_left = False

    def held_mib(self, mib: float) -> None:
        """Note how much this process and those beside it may have held together."""
        self.peak_together_mib = max(self.peak_together_mib, mib)

    def record(self) -> dict[str, Any]:
        """What the manifest keeps."""
        return {
            "started_at": self.started_at,
            "finished_at": now(),
            "elapsed_s": round(time.monotonic() - self.began_s, 3),
            "cpu_s": round(cpu_s() - self.began_cpu_s, 3),
            "cpu_count": os.cpu_count(),
            "peak_rss_mib": round(max(peak_rss_mib(), self.peak_together_mib), 1),
            "steps": self.steps,
        }


def outcome_of(store: ObjectStore, manifest: Manifest) -> Outcome:
    """What manifest and committed batches say: the sum of the sessions' time, their largest memory."""
    run_id = manifest["run_id"]
    verdict, reasons = run_verdict(judged(measured_tables(store, run_id)))
    sessions = manifest["sessions"]
    key = report_key(run_id)
    return Outcome(
        run_id=run_id,
        verdict=verdict,
        reasons=tuple(reasons),
        report=store.address(key) if store.get(key) is not None else None,
        elapsed_s=round(sum(each["elapsed_s"] for each in sessions), 3),
        peak_rss_mib=max((each["peak_rss_mib"] for each in sessions), default=0.0),
        objects_left=manifest["objects_left"],
    )
