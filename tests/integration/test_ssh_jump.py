"""Guests through a jump host: an SSH server that forwards, before end points of 127.0.0.0/8, one loop."""

import asyncio
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import asyncssh
import pytest

from infra.errors import GuestError, InvalidRun
from infra.guests.port import Target
from infra.guests.ssh.adapter import SshGuests
from infra.guests.ssh.settings import SshSettings
from tests.benchmarks.bench_ssh import OWN, STEPS_OF, Storm, is_named, plan_of
from tests.benchmarks.ssh_endpoints import EndPoint, EndPoints
from tests.integration.jump_host import JumpHost, jump_host

PORT = 2223
KINDS = {"slow": 1, "silent": 1, "wrong": 1, "refuses": 1, "disconnects": 1, "stranger": 1}
ALLOWED = 6
"""Channels on one connection."""


@pytest.fixture(scope="module")
def home(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    folder = tmp_path_factory.mktemp("home")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HOME", str(folder))
        patch.delenv("SSH_AUTH_SOCK", raising=False)
        yield folder


@asynccontextmanager
async def reached(keys: Path, jump: str) -> AsyncIterator[SshGuests]:
    async def find(vm: str) -> str:
        return f"127.{OWN}.8.{vm.removeprefix('vm-')}"

    guests = SshGuests(SshSettings(port=PORT, jump=jump, command_timeout_s=10), keys, find)
    try:
        yield guests
    finally:
        await guests.close()


async def stormed_through(home: Path, host: JumpHost, plan: list[EndPoint]) -> Storm:
    points, answers = EndPoints(plan, PORT), {}
    wanted = sum(STEPS_OF[point["kind"]] for point in plan)
    async with jump_host(home, host) as jump, reached(home / "keys", jump) as guests:
        guests.arm(point["vm"] for point in plan)
        for point in plan:
            guests.aim(Target(point["vm"], point["address"]))
        async with asyncio.timeout(30), asyncio.TaskGroup() as group:
            group.create_task(points.play(time.monotonic_ns() + 300_000_000))
            async for batch in guests.answers():
                answers.update({(each.vm, each.step): each for each in batch})
                if len(answers) >= wanted:
                    break
            while not all(is_named(point, guests.reason(point["vm"])) for point in plan):
                await asyncio.sleep(0.02)
        reasons = {point["vm"]: guests.reason(point["vm"]) for point in plan}
    points.close()
    return Storm(plan, answers, points.truths, reasons, cpu_s=0.0, wall_s=0.0)


@pytest.fixture(scope="module")
def stormed(home: Path) -> tuple[Storm, JumpHost]:
    host = JumpHost(most=ALLOWED)
    return asyncio.run(stormed_through(home, host, plan_of(16, 0.5, KINDS))), host


def test_through_a_jump_host_each_guest_shows_its_steps_and_its_reason(
    stormed: tuple[Storm, JumpHost],
) -> None:
    found, _ = stormed
    assert found.steps_missing() == {}
    assert found.misnamed() == {}


def test_the_error_bounds_through_a_jump_host_hold_the_truth(stormed: tuple[Storm, JumpHost]) -> None:
    found, _ = stormed
    disconnecting = {point["vm"] for point in found.plan if point["kind"] == "disconnects"}
    assert found.outside("tcp_open", "listening") == []
    assert set(found.outside("ssh_banner", "banner")) <= disconnecting
    assert found.outside("ssh_ready", "command") == []


def test_a_jump_host_is_asked_for_no_more_than_it_allows(stormed: tuple[Storm, JumpHost]) -> None:
    _, host = stormed
    assert host.most_channels == ALLOWED
    assert host.most_knocking == 1
    assert 16 / ALLOWED <= host.connections <= 16


def test_commands_go_through_a_jump_host_and_a_lost_connection_to_it_is_made_anew(
    home: Path, tmp_path: Path
) -> None:
    plan: list[EndPoint] = [{"vm": "vm-1", "address": f"127.{OWN}.8.1", "kind": "good", "at_s": 0.0}]
    host, points = JumpHost(), EndPoints(plan, PORT)

    async def main() -> None:
        await points.play(0)
        async with jump_host(home, host) as jump, reached(tmp_path, jump) as guests:
            assert await guests.run("vm-1", "uname -n", 10) == b"vm-1\n"
            for hop in guests._jump.hops:  # type: ignore[union-attr]
                hop.connection.abort()
            await asyncio.sleep(0.05)
            assert await guests.run("vm-1", "uname -n", 10) == b"vm-1\n"
            with pytest.raises(GuestError, match=r"guest vm-2: 127\.\d+\.8\.2 port 2223: .*Errno 111"):
                await guests.run("vm-2", "true", 10)
        points.close()

    asyncio.run(main())
    assert host.connections == 2


async def refusal(keys: Path, jump: str) -> str:
    async with reached(keys, jump) as guests:
        with pytest.raises(InvalidRun) as raised:
            await guests.reach()
        return str(raised.value)


def test_a_jump_host_that_lets_nobody_in_is_refused_in_one_line(home: Path, tmp_path: Path) -> None:
    async def main() -> None:
        async with jump_host(home, JumpHost()) as jump:
            stranger = asyncssh.generate_private_key("ssh-ed25519")
            stranger.write_public_key(str(home / ".ssh" / "authorized_keys"))
            assert await refusal(tmp_path, jump) == (
                "guests.jump bastion: jump host bastion: it refuses this user's keys "
                "(ssh must get there without asking for anything)"
            )
            (home / ".ssh" / "known_hosts").write_text("")
            assert "its host key is not among this user's known hosts" in await refusal(tmp_path, jump)
        closed = await refusal(tmp_path, "127.0.0.1:9")
        assert closed == "guests.jump 127.0.0.1:9: jump host 127.0.0.1: Connection refused"
        nowhere = await refusal(tmp_path, "no.invalid")
        assert nowhere.startswith("guests.jump no.invalid: jump host no.invalid: ")

    asyncio.run(main())
