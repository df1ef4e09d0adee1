"""Room for a batch's rows is taken before it is measured, and given back when it has ended."""

import shutil
from collections.abc import Callable

import pytest

from infra.errors import StoreError
from infra.results.folder import FolderStore
from infra.results.port import Cell
from infra.results.run_results import RunResults
from tests.unit.results.rows import deploys

Opened = Callable[..., RunResults]
DEPLOY, BOOT = Cell("deploy", "6000"), Cell("boot", "6000")


def test_room_that_another_stage_has_taken_is_not_given_twice(
    opened: Opened, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("VIRTSCALE_SPOOL_MIB", "30")
    first = opened().begin(DEPLOY)
    with pytest.raises(StoreError, match=r"needs up to 25 MiB and 25 of VIRTSCALE_SPOOL_MIB=30 are taken"):
        opened().begin(BOOT)
    first.add("vm_deploys", deploys(2))
    first.commit({})
    opened().begin(BOOT)


def test_room_that_is_taken_is_not_free_on_the_disk(
    opened: Opened, store: FolderStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    usage = shutil.disk_usage(store.root)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: usage._replace(free=40 << 20))
    opened().begin(DEPLOY)
    with pytest.raises(StoreError, match=r"boot 6000 needs up to 25 MiB and 15 MiB are free on the disk"):
        opened().begin(BOOT)
