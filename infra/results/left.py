"""What an earlier process kept on this machine while the store was away, once the store answers again."""

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

import orjson

from infra.errors import InUse, StoreError
from infra.results.manifest import manifest_key, read_manifest
from infra.results.outbox import Outbox, Write
from infra.results.sending import send

if TYPE_CHECKING:
    from infra.results.s3 import S3Store


def send_left(remote: "S3Store", outbox: Outbox, run_id: str, tell: Callable[[str], None]) -> None:
    """Send what waits, in its order; `tell` gets one line when something did. The caller holds the run.

    When another process has gone on with the run and finished it, nothing is sent: what waits would change
    a finished run, so it is set aside, unless the store has the same.

    Raises:
        InUse: another process has committed one of its batches; what was left is set aside.
        StoreError: the store does not take it, or the run was deleted from it: then it is set aside, too.
    """
    left = outbox.waiting()
    if not left:
        return
    key = manifest_key(run_id)
    if not any(write.kind == "put_new" and write.key == key for write in left):
        stored = read_manifest(remote, run_id)
        if stored is None:
            raise StoreError(
                f"run {run_id} was deleted from the store {remote.address('')} while {len(left)} writes of "
                f"it were kept on this machine (now in {outbox.set_aside()}); choose another --run-id"
            )
        held = orjson.loads(outbox.held(key)) if any(write.key == key for write in left) else None
        if is_overtaken(stored, held):
            tell(f"upload        {_not_sent(remote, outbox, left)}")
            return
    _send_all(remote, outbox, left)
    tell(f"upload        {len(left)} writes that were kept on this machine are in the store now")


def is_overtaken(stored: Mapping[str, Any], held: Mapping[str, Any] | None) -> bool:
    """Whether kept writes are older than the stored manifest; `held` is the one among them, if there is one.

    A run that was deleted and begun again is another one; without a manifest among them, what is kept was
    written while the stored one said that the run had not ended.
    """
    is_finished = bool(stored.get("finished_at"))
    if held is None:
        return is_finished
    if held.get("started_at") != stored.get("started_at"):
        return True
    before = stored.get("sessions", [])
    return is_finished and held.get("sessions", [])[: len(before)] != before


def _not_sent(remote: "S3Store", outbox: Outbox, left: list[Write]) -> str:
    """What became of writes that are not sent."""
    if all(_is_there(remote, outbox, write) for write in left):
        outbox.remove()
        return f"the store has the {len(left)} writes that were kept on this machine; they are gone here"
    return (
        f"another process went on with this run, so {len(left)} writes that were kept on this machine "
        f"are not sent but set aside in {outbox.set_aside()}"
    )


def _is_there(remote: "S3Store", outbox: Outbox, write: Write) -> bool:
    body = None if write.kind == "delete" else outbox.held(write.key)
    return remote.get(write.key) == body


def _send_all(remote: "S3Store", outbox: Outbox, left: list[Write]) -> None:
    for write in left:
        if not send(remote, outbox, write):
            raise InUse(
                f"store {remote.address(write.key)}: another process has committed it, so what "
                f"this machine had measured is set aside in {outbox.set_aside()}; start this run again"
            )
        outbox.sent(write)
