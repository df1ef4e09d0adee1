"""Proof on a real Ceph RGW: races, kills, outages, overhead, many runs. `make prove-rgw` writes docs/rgw.md.

Each section has an RGW and a folder of its own, wiped at its end. A section that was done with the very same
code is not done again, so a proof that was stopped goes on; `--fresh` forgets them. What is corrupt, and what
the command line says of bad input, is in `make test-rgw`.
"""

import os
import platform
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import click
import orjson

from infra.settings import cache_dir
from tests.benchmarks.kept import same_code
from tests.benchmarks.rgw_many import lists, trends
from tests.benchmarks.rgw_outages import flaky, full, outage
from tests.benchmarks.rgw_pairs import served_pairs, virtual_pairs
from tests.benchmarks.rgw_races import kills, race
from tests.benchmarks.rgw_runs import FORKS, PRELOADED, Proof, Row, gateway_in, say

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "rgw.md"
Section = Callable[[Proof], list[Row]]
SECTIONS: dict[str, Section] = {
    "race": lambda proof: race(proof, rounds=200),
    "kills": lambda proof: kills(proof, count=50),
    "outage": lambda proof: outage(proof, away_s=60.0),
    "flaky": lambda proof: flaky(proof, bad_s=60.0),
    "full": full,
    "served": lambda proof: served_pairs(proof, pairs=5),
    "virtual": virtual_pairs,
    "trend": trends,
    "list": lists,
}


def done_before(folder: Path, name: str) -> dict[str, Any] | None:
    """What a section gave: its rows and the seconds it took."""
    file = folder / f"{name}.json"
    found: dict[str, Any] | None = orjson.loads(file.read_bytes()) if file.is_file() else None
    return found


def prove(name: str, folder: Path, profile: str) -> dict[str, Any]:
    """Do a section, and keep what it gave."""
    began_s = time.monotonic()
    with TemporaryDirectory(prefix="rgw-") as place, gateway_in(Path(place)) as gateway:
        rows = SECTIONS[name](Proof(gateway, Path(place), profile))
    found = {"rows": [asdict(row) for row in rows], "took_s": time.monotonic() - began_s}
    folder.mkdir(parents=True, exist_ok=True)
    (folder / f"{name}.json").write_bytes(orjson.dumps(found))
    return found


def page(rows: list[Row], version: str, took_s: float) -> str:
    """The page of docs."""
    head = (
        "# Proven on a real Ceph RGW\n\n"
        f"By `make prove-rgw` ({took_s / 60:.0f} min, {os.cpu_count()} cores, {platform.machine()})\n"
        f"against {version}: monitor, OSD (bluestore) and gateway on one machine.\n"
        "Corrupt and missing objects, listing, conditions, TLS and refusals: `make test-rgw`, the same\n"
        "tests as over a folder and moto (tests/store). Requests and bytes: `make bench-store`.\n\n"
        "| what | asked | seen | holds |\n| --- | --- | --- | --- |\n"
    )
    return head + "".join(
        f"| {r.what} | {r.asked} | {r.seen} | {'yes' if r.holds else 'NO'} |\n" for r in rows
    )


@click.command()
@click.argument("names", nargs=-1, type=click.Choice(list(SECTIONS)))
@click.option(
    "--profile", default="small", show_default=True, help="of the runs that are killed and disturbed"
)
@click.option("--fresh", is_flag=True, help="do again what was done before")
def main(names: tuple[str, ...], profile: str, fresh: bool) -> None:
    """Do the named sections, or all; the page is written when all are done."""
    FORKS.set_forkserver_preload(PRELOADED)
    folder = cache_dir() / "prove-rgw" / f"{same_code()}-{profile}"
    for name in names or SECTIONS:
        found = (None if fresh else done_before(folder, name)) or prove(name, folder, profile)
        for row in rows_of(found):
            say(f"{'holds' if row.holds else 'FAILS'}: {row.what}: {row.seen} ({found['took_s']:.0f} s)")
    done = [each for name in SECTIONS if (each := done_before(folder, name))]
    rows = [row for each in done for row in rows_of(each)]
    if len(done) == len(SECTIONS):
        version = subprocess.run(["radosgw", "--version"], capture_output=True, text=True, check=True).stdout
        PAGE.write_text(page(rows, " ".join(version.split()[:3]), sum(each["took_s"] for each in done)))
    sys.exit(0 if all(row.holds for row in rows) else 1)


def rows_of(found: dict[str, Any]) -> list[Row]:
    """The rows that a section gave."""
    return [Row(**each) for each in found["rows"]]


if __name__ == "__main__":
    main()
