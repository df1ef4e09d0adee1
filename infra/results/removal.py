"""Removing a run wholly: first what readers look for, then the rest, so that none starts on half a run."""

import shutil
from collections.abc import Iterable

from infra.results.commits import part_prefix, read_commits, state_prefix
from infra.results.manifest import check_run_id, manifest_key
from infra.results.open import spool_folder
from infra.results.port import ObjectStore

DOCUMENTS = ("_summaries/", "_tuning/", "_ledger/")
"""Folders that hold one document per run, besides its manifest."""


def delete_run(store: ObjectStore, run_id: str, tables: Iterable[str]) -> int:
    """Delete everything of a run, its manifest first, then its commits; returns how many objects went.

    Interrupted, it is called again: it does not need what it has deleted. `tables` are those of this version;
    those that commits name besides are found by them.

    Raises:
        StoreError: the store refuses.
    """
    commits = read_commits(store, check_run_id(run_id))
    named = {table for commit in commits for table in commit.parts}
    folders = [f"_commits/{run_id}/", state_prefix(run_id), f"reports/{run_id}/"]
    folders += [part_prefix(table, run_id, "") for table in sorted({*tables, *named})]
    keys = [manifest_key(run_id), *(key for folder in folders for key in store.keys(folder))]
    keys += [f"{folder}{run_id}.json" for folder in DOCUMENTS]
    for key in keys:
        store.delete(key)
    shutil.rmtree(spool_folder(store, run_id), ignore_errors=True)
    return len(keys)
