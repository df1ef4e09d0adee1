"""The trend of a store: two objects are read for each run that is shown, no part of any table.

Of runs that an older version finished, the commits are read instead of the second one.
"""

from collections.abc import Mapping
from typing import Any, NamedTuple

from infra.errors import NotComparable
from infra.results.manifest import latest_manifests, read_manifests
from infra.results.port import ObjectStore
from infra.results.summaries import read_summaries
from tasks.analysis.trends import TrendRun, trend
from tasks.report.trend_page import trend_page

KEY = "reports/trend.html"

Manifest = Mapping[str, Any]


class Trend(NamedTuple):
    """Runs, oldest first; how many others (since the first, if older ones are not shown) are not finished."""

    runs: list[TrendRun]
    left_out: int


def read_trend(store: ObjectStore, profile: str = "", last: int = 0) -> Trend:
    """The trend over all runs of a profile ("": of every profile), or over the latest (0: all).

    Raises:
        NotComparable: the store has no such run that is finished.
    """

    def is_of_profile(manifest: Manifest) -> bool:
        return profile in {"", manifest["profile"]["name"]}

    def is_wanted(manifest: Manifest) -> bool:
        return is_of_profile(manifest) and _is_finished(manifest)

    known = latest_manifests(store, last, is_wanted) if last else list(read_manifests(store).values())
    chosen = sorted(filter(is_wanted, known), key=lambda each: (each["started_at"], each["run_id"]))[-last:]
    if not chosen:
        what = f" of profile {profile}" if profile else ""
        raise NotComparable(f"store {store.address('')}: no finished run{what} (virtscale runs lists them)")
    since = chosen[0]["started_at"] if last else ""
    left_out = [m for m in known if is_of_profile(m) and not _is_finished(m) and m["started_at"] >= since]
    return Trend(trend(list(read_summaries(store, chosen))), len(left_out))


def _is_finished(manifest: Manifest) -> bool:
    return manifest["finished_at"] is not None and manifest["verdict"] is not None


def write_trend(store: ObjectStore, found: Trend, where: str) -> str:
    """Write the page; returns where it is."""
    store.put(KEY, trend_page(found.runs, found.left_out, where).encode())
    return store.address(KEY)
