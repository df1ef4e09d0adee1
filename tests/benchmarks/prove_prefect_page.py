"""docs/operations.md from what `make prove-prefect` has seen."""

import os
import platform
from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path

HEAD = """# When something dies

Written by `make prove-prefect`; do not edit. {when}, {machine}.
"""
KILLS = """
## Killed in the middle of a run

A run of three deploys (15, 30, 45 VMs, one a second) on a served cluster, through a worker, on PostgreSQL,
disturbed with `kill -9` ten seconds into its second deploy. Times count from the kill. Redone is what was
*executed* more than once, by the log line that only an execution writes; records are the rows that count.

| killed | the run | redone | records | slot of the cluster |
|---|---|---|---|---|
"""
UI = """
## In the browser

Chromium, Prefect's own pages, real clicks. A fault plan takes the API away at `deploy 1600`, on its first
attempt only.

| step | what came of it |
|---|---|
"""


def write_page(path: Path, kills: Sequence[Iterable[str]], ui: Sequence[Iterable[str]]) -> None:
    """Write what there is."""
    machine = f"{os.cpu_count()} CPUs, Python {platform.python_version()}"
    text = HEAD.format(when=f"{datetime.now(UTC):%Y-%m-%d}", machine=machine)
    for head, rows in ((KILLS, kills), (UI, ui)):
        text += head + "".join(f"| {' | '.join(row)} |\n" for row in rows) if rows else ""
    path.write_text(text)
