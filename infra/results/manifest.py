"""What a store knows of a run as a whole: its manifest, its profile, its secret nonce."""

import re
import secrets
from collections.abc import Callable, Iterator, Mapping
from datetime import datetime, timedelta
from typing import Any

import orjson

from infra.errors import InUse, ProfileError, StoreError
from infra.results.commits import read_commits
from infra.results.fetch import fetch
from infra.results.port import ObjectStore

RUN_ID = re.compile(r"[a-z0-9](?:[-a-z0-9]{0,38}[a-z0-9])?")
SCHEMA = 1
"""The version of manifests that this version writes; it reads older ones, too."""
_FOLDER = "_manifests/"
_ABSENT = object()
AT_A_TIME = 8
CLOCKS_DIFFER = timedelta(minutes=1)
"""How much later by its own clock a machine may begin a run than the store's clock says."""
OBJECTS = "objects"
"""The table of what a run set out to create."""


def check_run_id(run_id: str) -> str:
    """The run id itself.

    Raises:
        ProfileError: it is none.
    """
    if RUN_ID.fullmatch(run_id):
        return run_id
    raise ProfileError(
        f"run id {run_id!r}: give --run-id 1 to 40 lower-case letters, digits and dashes, no dash at an end"
    )


def write_manifest(store: ObjectStore, run_id: str, manifest: Mapping[str, Any]) -> None:
    """Store the run's manifest whole, replacing an older one; `run_id` is added to it."""
    store.put(manifest_key(run_id), _encoded(run_id, manifest))


def write_first_manifest(store: ObjectStore, run_id: str, manifest: Mapping[str, Any]) -> None:
    """Store the manifest of a run that has none; kept writes of a run that begin with it are a whole run.

    Raises:
        InUse: another process has begun a run of this id.
    """
    if not store.put_new(manifest_key(run_id), _encoded(run_id, manifest)):
        raise InUse(
            f"run {run_id}: another process has begun it in this store; "
            "wait until it has ended, or choose another --run-id"
        )


def read_manifest(store: ObjectStore, run_id: str) -> dict[str, Any] | None:
    """The run's manifest; None when the store has no such run.

    Raises:
        StoreError: it is damaged, or was written by a newer version.
    """
    body = store.get(manifest_key(check_run_id(run_id)))
    if body is None:
        return None
    manifest = _parsed(body)
    if manifest is None or manifest.get("run_id") != run_id:
        raise StoreError(
            f"store {store.address(manifest_key(run_id))}: this manifest is damaged; put back a copy of it"
        )
    if _is_newer(manifest):
        raise StoreError(f"store {store.address(manifest_key(run_id))}: {_newer_text(manifest)}")
    return manifest


def read_manifests(
    store: ObjectStore, tell: Callable[[str], None] = lambda line: None
) -> dict[str, dict[str, Any]]:
    """All runs of the store: run id to manifest, by run id; else as `each_manifest`."""
    return {manifest["run_id"]: manifest for manifest in each_manifest(store, tell)}


def each_manifest(store: ObjectStore, tell: Callable[[str], None]) -> Iterator[dict[str, Any]]:
    """The manifests of all runs of the store, by run id; one at a time, as a store may hold thousands.

    Damaged ones, those of a newer version and other files are passed over; `tell` gets a line for each.
    """
    for key, body in fetch(store, [key for key in store.keys(_FOLDER) if key.endswith(".json")]):
        manifest = None if body is None else _parsed(body)
        run_id = _run_of(key)
        if manifest is None or manifest.get("run_id") != run_id:
            tell(f"{store.address(key)} is not shown: a damaged manifest, or none")
        elif _is_newer(manifest):
            tell(f"run {run_id} is not shown: {_newer_text(manifest)}")
        else:
            yield manifest


def latest_manifests(
    store: ObjectStore, count: int, wanted: Callable[[Mapping[str, Any]], bool]
) -> list[dict[str, Any]]:
    """The manifests of the `count` wanted runs that began last, and others that were looked at for them.

    They are read from the one that was written last on: a manifest is never written before its run began,
    so most of a large store is not read. What cannot be read is passed over.
    """
    found: list[dict[str, Any]] = []
    written = store.written(_FOLDER)[::-1]
    for at in range(0, len(written), AT_A_TIME):
        began = sorted((each["started_at"] for each in found if wanted(each)), reverse=True)[:count]
        newest_left = written[at][0] + CLOCKS_DIFFER
        if len(began) == count and datetime.fromisoformat(began[-1]) > newest_left:
            break
        for key, body in fetch(store, [key for _, key in written[at : at + AT_A_TIME]]):
            manifest = None if body is None else _parsed(body)
            if manifest is not None and manifest.get("run_id") == _run_of(key) and not _is_newer(manifest):
                found.append(manifest)
    return found


def _run_of(key: str) -> str:
    return key.removeprefix(_FOLDER).removesuffix(".json")


def _is_newer(manifest: Mapping[str, Any]) -> bool:
    return isinstance(manifest.get("schema"), int) and manifest["schema"] > SCHEMA


def _newer_text(manifest: Mapping[str, Any]) -> str:
    return (
        f"a newer virtscale wrote this manifest (schema {manifest['schema']}, this one knows {SCHEMA}); "
        "use that version"
    )


def check_same_profile(run_id: str, stored: Mapping[str, Any], given: Mapping[str, Any]) -> None:
    """Nothing when both resolved profiles say the same.

    Raises:
        ProfileError: they differ; the first key that does is named with both values.
    """
    before, now = dict(_leaves(_plain(stored))), dict(_leaves(_plain(given)))
    for key in [*before, *(key for key in now if key not in before)]:
        old, new = before.get(key, _ABSENT), now.get(key, _ABSENT)
        if old != new:
            raise ProfileError(
                f"run {run_id} was started with another profile "
                f"({key} differs: {_shown(old)} then, {_shown(new)} now); choose another --run-id"
            )


def new_nonce() -> str:
    """A secret of a run: 32 hex digits, never twice the same."""
    return secrets.token_hex(16)


def nonce_of(store: ObjectStore, run_id: str) -> str:
    """The run's secret nonce, made and kept in the store at the first call.

    Raises:
        StoreError: what is kept there is damaged or gone although the run created objects, or the store
            refuses.
    """
    key = _nonce_key(run_id)
    is_new = store.get(key) is None
    if is_new and not any(commit.parts.get(OBJECTS) for commit in read_commits(store, run_id)):
        store.put_new(key, orjson.dumps({"nonce": new_nonce()}))
    return kept_nonce(store, run_id)


def kept_nonce(store: ObjectStore, run_id: str) -> str:
    """The nonce of a run that has created something.

    Raises:
        StoreError: it is gone or damaged.
    """
    key = _nonce_key(run_id)
    body = store.get(key)
    if body is None:
        raise StoreError(
            f"store {store.address(key)}: the run's ledger is gone; put back a copy of it: "
            "without it what the run created cannot be told from other objects"
        )
    kept = _parsed(body)
    if kept is None or not isinstance(kept.get("nonce"), str):
        raise StoreError(f"store {store.address(key)}: the run's ledger is damaged; put back a copy of it")
    nonce: str = kept["nonce"]
    return nonce


def _nonce_key(run_id: str) -> str:
    return f"_ledger/{check_run_id(run_id)}.json"


def manifest_key(run_id: str) -> str:
    """The key of a run's manifest."""
    return f"{_FOLDER}{run_id}.json"


def _encoded(run_id: str, manifest: Mapping[str, Any]) -> bytes:
    body = {**manifest, "run_id": check_run_id(run_id)}
    return orjson.dumps(body, option=orjson.OPT_SORT_KEYS | orjson.OPT_INDENT_2)


def _parsed(body: bytes) -> dict[str, Any] | None:
    try:
        document = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    return document if isinstance(document, dict) else None


def _plain(document: Mapping[str, Any]) -> dict[str, Any]:
    plain: dict[str, Any] = orjson.loads(orjson.dumps(dict(document)))
    return plain


def _leaves(document: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    for key, value in document.items():
        if isinstance(value, dict) and value:
            yield from _leaves(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _shown(value: Any) -> str:
    return "absent" if value is _ABSENT else orjson.dumps(value).decode()
