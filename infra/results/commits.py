"""The commit of an attempt as JSON, its key, and all commits of a run."""

import re
from collections.abc import Iterable
from typing import Any

import orjson

from infra.errors import StoreError
from infra.results.fetch import fetch
from infra.results.port import Cell, Commit, ObjectStore

_NAME = re.compile(r".+-[1-9][0-9]*-[1-9][0-9]*\.json")


def attempt_name(cell: Cell, attempt: int) -> str:
    """`<stage>-<cell>-<repeat>-<attempt>`, the stem of everything that an attempt stores."""
    return f"{cell_prefix(cell)}{attempt}"


def cell_prefix(cell: Cell) -> str:
    """What the names of all attempts of a cell start with."""
    return f"{cell.stage}-{cell.cell}-{cell.repeat}-"


def attempt_of(key: str) -> str:
    """The attempt that a part, a state or a commit belongs to, by its key; another key stands for itself."""
    name = key.rpartition("/")[2]
    if name.endswith(".parquet"):
        return name.rpartition("-")[0]
    return name.partition(".")[0] if key.startswith(("_commits/", "_states/")) else key


def commit_key(run_id: str, cell: Cell, attempt: int) -> str:
    """The key whose existence makes an attempt visible."""
    return f"_commits/{run_id}/{attempt_name(cell, attempt)}.json"


def state_key(run_id: str, cell: Cell, attempt: int) -> str:
    """The key of the virtual cluster's state after an attempt."""
    return f"{state_prefix(run_id)}{attempt_name(cell, attempt)}.json.zst"


def state_prefix(run_id: str) -> str:
    """What the keys of a run's states start with."""
    return f"_states/{run_id}/"


def part_prefix(table: str, run_id: str, name: str) -> str:
    """What the keys of a table's parts start with, for the attempt (or cell prefix) `name`."""
    return f"{table}/run_id={run_id}/{name}"


def run_folders(run_id: str, tables: Iterable[str]) -> list[str]:
    """The folders of keys that a run looks into: its commits, its states, and its parts by table."""
    return [
        f"_commits/{run_id}/",
        state_prefix(run_id),
        *(part_prefix(table, run_id, "") for table in tables),
    ]


def encode(commit: Commit) -> bytes:
    """Deterministic JSON: sorted keys, no clock."""
    document = {
        "stage": commit.cell.stage,
        "cell": commit.cell.cell,
        "repeat": commit.cell.repeat,
        "attempt": commit.attempt,
        "complete": commit.complete,
        "sequence": commit.sequence,
        "parts": commit.parts,
        "summary": commit.summary,
        "state": commit.state,
        "state_sha256": commit.state_sha256,
    }
    return orjson.dumps(document, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2)


def decode(body: bytes) -> Commit:
    """The commit that `encode` wrote; KeyError, TypeError or ValueError when it is none."""
    document: dict[str, Any] = orjson.loads(body)
    parts = {
        table: [(key, rows, sha) for key, rows, sha in part] for table, part in document["parts"].items()
    }
    return Commit(
        cell=Cell(document["stage"], document["cell"], document["repeat"]),
        attempt=document["attempt"],
        complete=document["complete"],
        parts=parts,
        summary=document["summary"],
        state=document["state"],
        sequence=document["sequence"],
        state_sha256=document.get("state_sha256", ""),
    )


def read_commits(store: ObjectStore, run_id: str, seen: dict[str, Commit] | None = None) -> list[Commit]:
    """All commits of a run in the order of commit; files that are no commits are passed over.

    `seen` keeps what was read between calls: a commit never changes.

    Raises:
        StoreError: a commit is damaged.
    """
    seen = {} if seen is None else seen
    keys = [key for key in store.keys(f"_commits/{run_id}/") if _NAME.fullmatch(key.rpartition("/")[2])]
    for key, body in fetch(store, [key for key in keys if key not in seen]):
        if body is not None:
            seen[key] = _decoded(store, key, body)
    # A copy that somebody made under another name would count its batch twice.
    genuine = [seen[key] for key in keys if key in seen and key == _own_key(run_id, seen[key])]
    return sorted(genuine, key=lambda each: (each.sequence, _own_key(run_id, each)))


def _own_key(run_id: str, commit: Commit) -> str:
    return commit_key(run_id, commit.cell, commit.attempt)


def _decoded(store: ObjectStore, key: str, body: bytes) -> Commit:
    try:
        return decode(body)
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise StoreError(
            f"store {store.address(key)}: this commit is damaged; "
            "put back a copy of it, or delete it to redo its batch"
        ) from error
