"""The SSH adapter against end points of 127.0.0.0/8: a light SSH server process, honest and otherwise."""

import asyncio
import gc
import json
import socket
import stat
import time
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import asyncssh
import pytest

from infra.errors import GuestError
from infra.guests.port import Target
from infra.guests.ssh.adapter import FULL_COLLECTION, SshGuests
from infra.guests.ssh.keys import public_line
from infra.guests.ssh.settings import SshSettings
from tests.benchmarks.bench_ssh import OWN, PORT, STEPS_OF, Storm, endpoints, plan_of, prober, say, storm
from tests.benchmarks.ssh_endpoints import EndPoint

ADDRESSES = {"vm-1": f"127.{OWN}.9.1", "vm-2": f"127.{OWN}.9.2"}
KINDS = {
    "slow": 3,
    "filtered": 3,
    "silent": 3,
    "wrong": 2,
    "refuses": 2,
    "disconnects": 2,
    "stranger": 2,
}


@pytest.fixture(scope="module")
def stormed(tmp_path_factory: pytest.TempPathFactory) -> Storm:
    return storm(plan_of(60, 2.0, KINDS), lambda: prober(tmp_path_factory.mktemp("ssh")), 60.0)


def test_each_end_point_shows_the_steps_that_it_has(stormed: Storm) -> None:
    assert len(stormed.answers) == sum(STEPS_OF[point["kind"]] for point in stormed.plan)
    assert stormed.steps_missing() == {}


def test_each_kind_of_misbehaviour_has_a_reason_of_its_own(stormed: Storm) -> None:
    assert stormed.misnamed() == {}


def test_the_error_bounds_hold_the_truth(stormed: Storm) -> None:
    disconnecting = {point["vm"] for point in stormed.plan if point["kind"] == "disconnects"}
    assert stormed.outside("tcp_open", "listening") == []
    assert set(stormed.outside("ssh_banner", "banner")) <= disconnecting
    assert stormed.outside("ssh_ready", "command") == []


def test_nobody_is_delayed_by_those_who_misbehave(stormed: Storm) -> None:
    errors = stormed.errors_ms("tcp_open")
    assert errors[len(errors) // 2] < 500


@pytest.fixture(scope="module")
def served() -> Iterator[None]:
    """Two end points that are up: vm-1 is what it should be, at vm-2's address another machine answers."""
    kinds = ("good", "stranger")
    plan: list[EndPoint] = [
        {"vm": vm, "address": address, "kind": kind, "at_s": 0.0}
        for (vm, address), kind in zip(ADDRESSES.items(), kinds, strict=True)
    ]
    with endpoints(plan) as process:
        say(process, "0")
        for address in ADDRESSES.values():
            until_open(address)
        yield


def with_guests(folder: Path, use: Callable[[SshGuests], Awaitable[None]]) -> None:
    async def find(vm: str) -> str:
        return ADDRESSES.get(vm, "")

    async def main() -> None:
        guests = SshGuests(SshSettings(port=PORT, command_timeout_s=10), folder, find)
        try:
            await use(guests)
        finally:
            await guests.close()

    asyncio.run(main())


def until_open(address: str) -> None:
    for _ in range(200):
        with socket.socket() as sock:
            if sock.connect_ex((address, PORT)) == 0:
                return
        time.sleep(0.02)
    pytest.fail(f"{address} was never open")


@pytest.mark.usefixtures("served")
def test_commands_and_files_go_over_one_connection(tmp_path: Path) -> None:
    content = b"every line\nand the next\n"
    place = str(tmp_path / "in the guest" / "it's")

    async def use(guests: SshGuests) -> None:
        await guests.put("vm-1", place, content)
        assert Path(place).read_bytes() == content
        assert await guests.fetch("vm-1", place) == content
        assert await guests.run("vm-1", "echo hello", 5) == b"hello\n"
        with pytest.raises(GuestError, match=r"guest vm-1: cat: exit status 1: .*No such file"):
            await guests.fetch("vm-1", place + "s")
        with pytest.raises(GuestError, match=r"did not end within 0\.2 s"):
            await guests.run("vm-1", "sleep 1", 0.2)
        with pytest.raises(GuestError, match="guest vm-3: its VirtualMachineInstance states no address"):
            await guests.run("vm-3", "true", 5)

    with_guests(tmp_path / "keys", use)


@pytest.mark.usefixtures("served")
def test_the_key_and_the_host_keys_are_private_files(tmp_path: Path) -> None:
    async def use(guests: SshGuests) -> None:
        await guests.run("vm-1", "true", 5)

    with_guests(tmp_path / "keys", use)
    modes = {file.name: stat.S_IMODE(file.stat().st_mode) for file in (tmp_path / "keys").iterdir()}
    assert modes == {"key": 0o600, "host_keys": 0o600}


def test_keys_are_made_when_a_guest_is_and_go_when_none_is_left(tmp_path: Path) -> None:
    folder = tmp_path / "keys"

    async def use(guests: SshGuests) -> None:
        assert not folder.exists()
        first = guests.cloud_init("vm-1")
        assert [path.name for path in folder.iterdir()] == ["key"]
        guests.forget()
        assert not folder.exists()
        assert guests.cloud_init("vm-1") != first

    with_guests(folder, use)


@pytest.mark.usefixtures("served")
def test_a_host_key_that_changed_is_found(tmp_path: Path) -> None:
    async def again(guests: SshGuests) -> None:
        with pytest.raises(GuestError, match="its host key is not the one that it showed first"):
            await guests.run("vm-1", "true", 5)
        assert guests.cloud_init("vm-1") is not None
        assert await guests.run("vm-1", "echo made anew", 5) == b"made anew\n"

    other = public_line(asyncssh.generate_private_key("ssh-ed25519"))
    (tmp_path / "host_keys").write_text(json.dumps(["vm-1", other]) + "\n")
    with_guests(tmp_path, again)


@pytest.mark.usefixtures("served")
def test_another_machine_at_the_address_is_found(tmp_path: Path) -> None:
    async def use(guests: SshGuests) -> None:
        with pytest.raises(GuestError, match=r"another machine answers .* names itself 'someone-else'"):
            await guests.run("vm-2", "true", 5)

    with_guests(tmp_path, use)


def test_full_garbage_collections_are_seldom_while_guests_are_probed(tmp_path: Path) -> None:
    before = gc.get_threshold()

    async def use(guests: SshGuests) -> None:
        guests.arm(["vm-1"])
        assert gc.get_threshold() == (*before[:2], FULL_COLLECTION)
        guests.arm(["vm-1"])
        guests.disarm()
        assert gc.get_threshold() == before

    with_guests(tmp_path, use)


def test_a_login_that_is_cancelled_before_it_began_leaves_no_connection(tmp_path: Path) -> None:
    ours, theirs = socket.socketpair()

    async def use(guests: SshGuests) -> None:
        guests.arm(["vm-1"])
        guests._begin_login(guests._probes["vm-1"], ours)
        guests.disarm()
        await asyncio.sleep(0)
        await asyncio.sleep(0)

    with_guests(tmp_path, use)
    assert ours.fileno() == -1
    theirs.close()


@pytest.mark.usefixtures("served")
def test_an_address_that_changes_is_knocked_at_anew(tmp_path: Path) -> None:
    async def use(guests: SshGuests) -> None:
        guests.arm(["vm-1"])
        guests.aim(Target("vm-1", f"127.{OWN}.9.3"))
        await asyncio.sleep(0.3)
        assert guests.reason("vm-1") == f"127.{OWN}.9.3: the port refuses connections (no sshd yet)"
        guests.aim(Target("vm-1", f"127.{OWN}.9.1"))
        seen = [answer.step async for batch in guests.answers() for answer in _until_ready(guests, batch)]
        assert seen == ["tcp_open", "ssh_banner", "ssh_ready"]
        assert await guests.run("vm-1", "uname -n", 5) == b"vm-1\n"

    with_guests(tmp_path, use)


def _until_ready(guests: SshGuests, batch: list) -> list:  # type: ignore[type-arg]
    if batch[-1].step == "ssh_ready":
        assert guests.reason("vm-1") is None
        guests.disarm()
    return batch
