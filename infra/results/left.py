"""What an earlier process kept on this machine while the store was away, once the store answers again."""

from collections.abc import Callable
from typing import TYPE_CHECKING

from infra.errors import InUse, StoreError
from infra.results.manifest import manifest_key, read_manifest
from infra.results.outbox import Outbox
from infra.results.sending import send

if TYPE_CHECKING:
    from infra.results.s3 import S3Store


def send_left(remote: "S3Store", outbox: Outbox, run_id: str, tell: Callable[[str], None]) -> None:
    """Send what waits, in its order; `tell` gets a line when something did. The caller holds the run.

    Raises:
        InUse: another process has committed one of its batches; what was left is set aside.
        StoreError: the store does not take it, or the run was deleted from it: then it is set aside, too.
    """
    left = outbox.waiting()
    if not left:
        return
    begins = any(write.kind == "put_new" and write.key == manifest_key(run_id) for write in left)
    if not begins and read_manifest(remote, run_id) is None:
        raise StoreError(
            f"run {run_id} was deleted from the store {remote.address('')} while {len(left)} writes of it "
            f"were kept on this machine (now in {outbox.set_aside()}); choose another --run-id"
        )
    for write in left:
        if not send(remote, outbox, write):
            raise InUse(
                f"store {remote.address(write.key)}: another process has committed it, so what "
                f"this machine had measured is set aside in {outbox.set_aside()}; start this run again"
            )
        outbox.sent(write)
    tell(f"upload        {len(left)} writes that were kept on this machine are in the store now")
