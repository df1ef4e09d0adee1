"""The trend of a store: manifests and commits are read, no part of any table."""

from typing import Any, NamedTuple

from infra.errors import NotComparable
from infra.results.commits import read_commits
from infra.results.manifest import read_manifests
from infra.results.port import ObjectStore
from infra.results.read import last_complete
from tasks.analysis.trends import TrendRun, trend
from tasks.report.trend_page import trend_page

KEY = "reports/trend.html"


class Trend(NamedTuple):
    """Runs, oldest first; how many are not finished or measured nothing."""

    runs: list[TrendRun]
    left_out: int


def read_trend(store: ObjectStore, profile: str = "", last: int = 0) -> Trend:
    """The trend over all runs of a profile ("": of every profile), or over the latest (0: all).

    Raises:
        NotComparable: the store has no such run that is finished.
    """
    manifests = [each for each in read_manifests(store).values() if profile in {"", each["profile"]["name"]}]
    finished = [each for each in manifests if each["finished_at"] is not None and each["verdict"] is not None]
    chosen = sorted(finished, key=lambda each: (each["started_at"], each["run_id"]))[-last:]
    if not chosen:
        what = f" of profile {profile}" if profile else ""
        raise NotComparable(f"store {store.address('')}: no finished run{what} (virtscale runs lists them)")
    runs = trend([(each, _summaries(store, each["run_id"])) for each in chosen])
    return Trend(runs, len(manifests) - len(finished))


def _summaries(store: ObjectStore, run_id: str) -> list[dict[str, Any]]:
    return [dict(commit.summary) for commit in last_complete(read_commits(store, run_id))]


def write_trend(store: ObjectStore, found: Trend, where: str) -> str:
    """Write the page; returns where it is."""
    store.put(KEY, trend_page(found.runs, found.left_out, where).encode())
    return store.address(KEY)
