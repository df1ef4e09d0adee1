"""The spool: what was appended is there, what is torn is not, and a living writer is left alone."""

import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from infra.errors import StoreError
from infra.results.spool import Frame, create_spool, read_spool, reopen_spool

VALUES = (
    st.none()
    | st.booleans()
    | st.integers(-(2**53), 2**53)
    | st.floats(allow_nan=False, allow_infinity=False)
)
ROWS = st.dictionaries(
    st.text("abc", min_size=1), st.lists(VALUES | st.text(max_size=9), min_size=2, max_size=2), max_size=4
)
FRAMES = st.lists(st.tuples(st.sampled_from(["vm_boots", "objects"]), ROWS), max_size=5)
IN_ONE_FOLDER = settings(
    suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None, max_examples=60
)


@pytest.fixture
def fresh(tmp_path: Path) -> Callable[[], Path]:
    """A path that no earlier example of hypothesis has used."""
    return lambda: tmp_path / f"{len(list(tmp_path.iterdir()))}.spool"


def write(path: Path, frames: list[Frame]) -> bytes:
    spool = create_spool(path)
    for table, rows in frames:
        spool.append(table, rows)
    spool.close()
    return path.read_bytes()


@IN_ONE_FOLDER
@given(frames=FRAMES)
def test_what_was_appended_reads_back_in_order(fresh: Callable[[], Path], frames: list[Frame]) -> None:
    path = fresh()
    write(path, frames)
    assert list(read_spool(path)) == frames


@IN_ONE_FOLDER
@given(frames=FRAMES, data=st.data())
def test_a_spool_cut_anywhere_yields_its_first_frames_and_never_a_wrong_row(
    fresh: Callable[[], Path], frames: list[Frame], data: st.DataObject
) -> None:
    path = fresh()
    body = write(path, frames)
    path.write_bytes(body[: data.draw(st.integers(0, len(body)))])
    found = list(read_spool(path))
    assert found == frames[: len(found)]


@IN_ONE_FOLDER
@given(frames=FRAMES.filter(bool), data=st.data())
def test_a_damaged_byte_ends_the_spool_before_its_frame(
    fresh: Callable[[], Path], frames: list[Frame], data: st.DataObject
) -> None:
    path = fresh()
    body = bytearray(write(path, frames))
    body[data.draw(st.integers(0, len(body) - 1))] ^= data.draw(st.integers(1, 255))
    path.write_bytes(body)
    found = list(read_spool(path))
    assert found == frames[: len(found)]
    assert len(found) < len(frames)


@pytest.mark.parametrize("tail", [b"\0" * 4096, b"\xff" * 4096, b"[]", b"\x02\0\0\0\0\0\0\0[]"])
def test_a_tail_that_a_failing_machine_left_is_no_row(fresh: Callable[[], Path], tail: bytes) -> None:
    path = fresh()
    path.write_bytes(write(path, [("t", {"a": [1]})]) + tail)
    assert list(read_spool(path)) == [("t", {"a": [1]})]


@pytest.mark.parametrize("tail", [b"\0" * 99, b"\x09\0\0\0"])
def test_what_is_appended_after_a_torn_frame_is_found(fresh: Callable[[], Path], tail: bytes) -> None:
    path = fresh()
    path.write_bytes(write(path, [("t", {"a": [1]})]) + tail)
    spool = reopen_spool(path)
    assert spool is not None
    spool.append("t", {"a": [2]})
    assert list(read_spool(path)) == [("t", {"a": [1]}), ("t", {"a": [2]})]
    spool.close()


def test_rows_are_readable_before_any_flush(fresh: Callable[[], Path]) -> None:
    path = fresh()
    spool = create_spool(path)
    spool.append("t", {"a": [0.1]})
    assert list(read_spool(path)) == [("t", {"a": [0.1]})]
    spool.close()


def test_the_spool_of_a_living_writer_is_not_taken_over(fresh: Callable[[], Path]) -> None:
    path = fresh()
    spool = create_spool(path)
    for take in (reopen_spool, create_spool):
        with pytest.raises(
            StoreError, match=r"another process is at work on 0 of this run; wait for it, or choose"
        ):
            take(path)
    spool.close()
    again = reopen_spool(path)
    assert again is not None
    again.close()


def test_a_removed_spool_is_gone_and_leaves_nothing(fresh: Callable[[], Path]) -> None:
    path = fresh()
    create_spool(path).remove()
    assert reopen_spool(path) is None
    assert list(read_spool(path)) == []
    assert list(path.parent.iterdir()) == []


def test_a_full_disk_is_one_line_and_leaves_the_spool_whole(
    fresh: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    path, pwrite = fresh(), os.pwrite
    spool = create_spool(path)
    spool.append("t", {"a": [1]})

    def half_a_frame(descriptor: int, body: Any, offset: int) -> int:
        pwrite(descriptor, body[:10], offset)
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(os, "pwrite", half_a_frame)
        with pytest.raises(
            StoreError, match=r"cannot be written \(no space left on device\); choose another --store$"
        ):
            spool.append("t", {"a": [2]})
    spool.append("t", {"a": [3]})
    spool.flush()
    assert list(read_spool(path)) == [("t", {"a": [1]}), ("t", {"a": [3]})]
    spool.close()


def test_the_disk_is_synced_once_a_second_and_at_a_flush(
    fresh: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [100.0]
    synced: list[int] = []
    monkeypatch.setattr("infra.results.spool.time.monotonic", lambda: now[0])
    spool = create_spool(fresh())
    monkeypatch.setattr(os, "fsync", synced.append)
    for _ in range(30):
        spool.append("t", {})
        now[0] += 0.1
    spool.flush()
    spool.close()
    assert len(synced) == 3


def test_a_batch_that_ended_is_synced_before_its_spool_is_let_go(
    fresh: Callable[[], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    synced: list[int] = []
    spool = create_spool(fresh())
    monkeypatch.setattr(os, "fsync", synced.append)
    spool.append("t", {})
    spool.flush_soon()
    spool.close()
    assert len(synced) == 1
