"""A table as polars reads it by itself: straight from the store, only what a query needs of it.

Only committed parts are named to polars, so a reader sees whole batches; unlike `read.scan`, it does not
fetch whole parts, so it cannot check their SHA-256.
"""

from collections.abc import Iterable

import polars as pl
import pyarrow as pa

from infra.results.commits import read_commits
from infra.results.port import ObjectStore
from infra.results.read import Which, last_complete


def scan_lazy(
    store: ObjectStore, run_ids: Iterable[str], table: str, schema: pa.Schema, which: Which = "last_complete"
) -> pl.LazyFrame:
    """A table of some runs, with `run_id` among its columns; columns that an older version lacked are null.

    Raises:
        StoreError: a commit is damaged, or the store is away.
    """
    empty = pl.DataFrame(schema.empty_table())
    runs = {run_id: _parts(store, run_id, table, which) for run_id in run_ids}
    # Not from the folders' names: a folder above the store may be called `stage=boot`.
    frames = [
        pl.scan_parquet(
            [store.address(key) for key in keys],
            hive_partitioning=False,
            schema=empty.schema,
            missing_columns="insert",
            extra_columns="ignore",
            storage_options=store.scan_options() or None,
        ).select(pl.lit(run_id, pl.String).alias("run_id"), *schema.names)
        for run_id, keys in runs.items()
        if keys
    ]
    if not frames:
        return empty.lazy().select(pl.lit("", pl.String).alias("run_id"), *schema.names)
    return pl.concat(frames)


def _parts(store: ObjectStore, run_id: str, table: str, which: Which) -> list[str]:
    commits = read_commits(store, run_id)
    chosen = last_complete(commits) if which == "last_complete" else commits
    return [key for commit in chosen for key, _, _ in commit.parts.get(table, [])]
