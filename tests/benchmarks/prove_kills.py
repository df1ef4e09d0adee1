"""Proof: a run killed with -9 in the middle of any step and resumed has the tables of an undisturbed one.

`make prove-kills` (20 kills of profile `small`, all stages); prints one line per kill, and exits 1 when a
run differed. Compared are the last complete attempts of every table, without `attempt` and UIDs.
"""

import random
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import polars as pl

from infra.results.open import open_store
from infra.results.read import scan
from tasks.records import TABLES

RUN_ID = "killed"
IGNORED = ("attempt", "uid")


def command(store: Path, profile: str) -> list[str]:
    """The run, as a person would type it."""
    options = ["--no-prefect", "--profile", profile, "--run-id", RUN_ID]
    options += ["--seed", "7", "--store", str(store)]
    return [sys.executable, "-m", "flows", "run", *options]


def run_whole(store: Path, profile: str) -> float:
    """Run to the end; returns the seconds it took.

    Raises:
        subprocess.CalledProcessError: it did not get there; what it said has been printed.
    """
    began = time.monotonic()
    done = subprocess.run(command(store, profile), capture_output=True, text=True, check=False)
    if done.returncode:
        print(done.stderr, file=sys.stderr)
        done.check_returncode()
    return time.monotonic() - began


def run_killed(store: Path, profile: str, commits: int, more_s: float) -> int:
    """Run, and kill -9 a while after so many commits; returns how many there are then."""
    process = subprocess.Popen(command(store, profile), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    while process.poll() is None and count_commits(store) < commits:
        time.sleep(0.01)
    time.sleep(more_s)
    process.kill()
    process.wait()
    return count_commits(store)


def count_commits(store: Path) -> int:
    """Commits of the run."""
    return len(list((store / "_commits" / RUN_ID).glob("*.json")))


def tables(store: Path | str) -> dict[str, pl.DataFrame]:
    """Every table's last complete attempts, in a fixed order of rows."""
    opened = open_store(str(store))
    found = {}
    for name, schema in TABLES.items():
        frame = scan(opened, RUN_ID, name, schema)
        columns = [column for column in frame.columns if column not in IGNORED]
        frame = frame.select(columns).unique() if name == "objects" else frame.select(columns)
        flat = [column for column in columns if not isinstance(frame.schema[column], pl.List)]
        found[name] = frame.sort(flat, nulls_last=True)
    return found


def differences(left: dict[str, pl.DataFrame], right: dict[str, pl.DataFrame]) -> list[str]:
    """Tables that are not equal, row for row."""
    return [name for name, frame in left.items() if not frame.equals(right[name])]


def prove(kills: int, profile: str, seed: int) -> int:
    """Run undisturbed once, then `kills` times with one kill each; returns how many differed."""
    draw, wrong = random.Random(seed), 0
    with tempfile.TemporaryDirectory() as folder:
        undisturbed = Path(folder) / "undisturbed"
        took_s = run_whole(undisturbed, profile)
        truth, total = tables(undisturbed), count_commits(undisturbed)
        print(f"undisturbed {profile}: {took_s:.1f} s, {sum(map(len, truth.values()))} rows, {total} commits")
        for kill in range(1, kills + 1):
            store = Path(folder) / f"kill-{kill}"
            there = run_killed(store, profile, draw.randrange(total), draw.uniform(0, 2 * took_s / total))
            run_whole(store, profile)
            found = differences(truth, tables(store))
            wrong += bool(found)
            print(
                f"kill {kill:2} after {there:2} of {total} commits: {', '.join(found) or 'equal'}", flush=True
            )
    return wrong


if __name__ == "__main__":
    arguments = [*sys.argv[1:], "20", "small"][:2]
    sys.exit(1 if prove(int(arguments[0]), arguments[1], seed=1) else 0)
