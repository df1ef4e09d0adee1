"""docs/operations.md from what `make prove-prefect` has seen."""

import os
import platform
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from tests.benchmarks.kept import Rows

HEAD = """# When something dies

Written by `make prove-prefect`; do not edit. {when}, {machine}.
"""
KILLS = """
## Killed in the middle of a run

A run of three deploys (15, 30, 45 VMs, one a second) on a served cluster, through a worker, on PostgreSQL,
disturbed with `kill -9` ten seconds into its second deploy. Times count from the kill. Redone is what was
*executed* more than once, by its attempts in the store and by the log line that only an execution writes;
records are the rows that count.

| killed | the run | redone | records | slot of the cluster |
|---|---|---|---|---|
"""
CANCEL = """
## Cancelled while something cannot go

Cancel in the middle of a deploy of 40 VMs; a finalizer of somebody else holds the golden image's DataSource
for 80 s. Times count from Cancel.

| what happened | when |
|---|---|
"""
UI = """
## In the browser

Chromium, Prefect's own pages, real clicks. A fault plan takes the API away at `deploy 1600`, on its first
attempt only.

| step | what came of it |
|---|---|
"""
COST = """
## What Prefect costs

The whole study on the virtual cluster, once through the worker, before and after that without Prefect.

| what | measured |
|---|---|
"""
LINES = """
## What is said when something is wrong

| what is wrong | what is said |
|---|---|
"""
HEADS = {"kills": KILLS, "cancel": CANCEL, "browser": UI, "cost": COST, "lines": LINES}


def write_page(path: Path, seen: Mapping[str, Rows]) -> None:
    """Write what there is."""
    machine = (
        f"{os.cpu_count()} CPUs, load {os.getloadavg()[0]:.1f} at the end, Python {platform.python_version()}"
    )
    text = HEAD.format(when=f"{datetime.now(UTC):%Y-%m-%d}", machine=machine)
    for name, head in HEADS.items():
        text += head + "".join(f"| {' | '.join(row)} |\n" for row in seen[name])
    path.write_text(text)
