"""The summaries of a finished run in one object: who reads many runs needs no commit of theirs.

    _summaries/<id>.json     the summaries of its last complete attempts, in the order of commit

The manifest names it by its SHA-256, so one that is older than the end of the run is never taken for it.
"""

import hashlib
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

import orjson

from infra.results.commits import read_commits
from infra.results.fetch import fetch
from infra.results.port import Commit, ObjectStore
from infra.results.read import last_complete

FOLDER = "_summaries/"
NAMED_AS = "summaries_sha256"
"""The key of a manifest that names the object."""

Summary = dict[str, Any]


def write_summaries(store: ObjectStore, run_id: str) -> dict[str, str]:
    """Store them as they are now; returns what names them in the manifest."""
    body = orjson.dumps(_summaries(read_commits(store, run_id)), option=orjson.OPT_SORT_KEYS)
    store.put(_key(run_id), body)
    return {NAMED_AS: hashlib.sha256(body).hexdigest()}


def read_summaries(
    store: ObjectStore, manifests: Iterable[Mapping[str, Any]]
) -> Iterator[tuple[Mapping[str, Any], list[Summary]]]:
    """Each manifest with its run's summaries; from the commits where that object is not the right one.

    Raises:
        StoreError: a commit is damaged, or the store is away.
    """
    runs = list(manifests)
    bodies = fetch(store, [_key(run["run_id"]) for run in runs])
    for run, (_, body) in zip(runs, bodies, strict=True):
        right = body is not None and hashlib.sha256(body).hexdigest() == run.get(NAMED_AS)
        yield run, orjson.loads(body or b"") if right else _summaries(read_commits(store, run["run_id"]))


def _summaries(commits: Iterable[Commit]) -> list[Summary]:
    return [dict(commit.summary) for commit in last_complete(commits)]


def _key(run_id: str) -> str:
    return f"{FOLDER}{run_id}.json"
