"""What Prefect costs: the whole study through a worker against `virtscale run --no-prefect`, in turns."""

import subprocess
import sys
import time

from tests.integration.operating import Operation, until

STUDY = "study/virtual-study"
MOST_SHARE, MOST_START_S, MOST_TASK_RUNS = 1.3, 15.0, 80


def cost(operation: Operation) -> list[tuple[str, str]]:
    """Wall seconds of both (plain, worker, plain), and how many task runs there were."""
    first_s = plainly(operation, "plain-1")
    began_s = time.monotonic()
    run_id = operation.start(STUDY, profile="study", seed=7)
    until(lambda: operation.run(run_id)["state"]["type"], lambda state: state not in {"SCHEDULED", "PENDING"})
    start_s = time.monotonic() - began_s
    ended = until(
        lambda: operation.run(run_id)["state"]["type"],
        lambda state: state in {"COMPLETED", "FAILED", "CRASHED", "CANCELLED"},
        1800,
    )
    worker_s = time.monotonic() - began_s
    assert ended == "COMPLETED", operation.run(run_id)["state"]["message"]
    plain_s = (first_s + plainly(operation, "plain-2")) / 2
    task_runs = operation.ask("POST", "/task_runs/count", {"flow_runs": {"id": {"any_": [run_id]}}})
    allowed_s = MOST_SHARE * plain_s + MOST_START_S
    return [
        (
            "`virtscale run --no-prefect`, the whole command, mean of one before and one after",
            f"{plain_s:.0f} s",
        ),
        (
            "through the worker, from the request to Completed",
            f"{worker_s:.0f} s, of it {start_s:.0f} s until it runs",
        ),
        (
            f"at most {MOST_SHARE:g} times that plus {MOST_START_S:g} s",
            f"{allowed_s:.0f} s: {'yes' if worker_s <= allowed_s else 'NO'}",
        ),
        (
            f"task runs, at most {MOST_TASK_RUNS}",
            f"{task_runs}: {'yes' if 0 < task_runs <= MOST_TASK_RUNS else 'NO'}",
        ),
    ]


def plainly(operation: Operation, run_id: str) -> float:
    """Wall seconds of the same study without Prefect."""
    command = [
        sys.executable, "-m", "flows", "run", "--no-prefect", "--profile", "study", "--seed", "7",
        "--run-id", run_id, "--store", str(operation.folder / "store"),
    ]  # fmt: skip
    began_s = time.monotonic()
    done = subprocess.run(command, env=operation.environment, check=False, capture_output=True, text=True)
    assert done.returncode in {0, 3}, done.stderr
    return time.monotonic() - began_s
