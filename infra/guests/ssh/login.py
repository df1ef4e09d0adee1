"""From a banner to an authenticated command, and commands and files over the connection that is then open."""

import asyncio
import shlex
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import asyncssh

from infra.errors import GuestError
from infra.guests.ssh.jump import Channel, Link
from infra.guests.ssh.keys import HostKeys

IDENTIFY = "uname -n"
"""The authenticated command: the guest names itself."""
KEX = (
    "curve25519-sha256",
    "curve25519-sha256@libssh.org",
    "ecdh-sha2-nistp256",
    "diffie-hellman-group14-sha256",
)
HOST_KEYS = ("ssh-ed25519", "ecdsa-sha2-nistp256", "rsa-sha2-512", "rsa-sha2-256")
CIPHERS = ("aes128-gcm@openssh.com", "aes128-ctr", "chacha20-poly1305@openssh.com", "aes256-ctr")


@dataclass(frozen=True, slots=True)
class Login:
    """How guests of a run are logged in to."""

    user: str
    key: asyncssh.SSHKey
    host_keys: HostKeys
    login_timeout_s: float
    command_timeout_s: float


class _Guest(asyncssh.SSHClient):
    """Believes the first host key that a VM shows, and no other after it."""

    def __init__(self, vm: str, host_keys: HostKeys) -> None:
        self._vm, self._host_keys = vm, host_keys

    def validate_host_public_key(self, host: str, addr: str, port: int, key: asyncssh.SSHKey) -> bool:
        return self._host_keys.is_same(self._vm, key)


def options_of(login: Login) -> asyncssh.SSHClientConnectionOptions:
    """Options of every connection: nothing is taken from this machine's user, neither files nor agent."""
    return asyncssh.SSHClientConnectionOptions(
        config=None,
        username=login.user,
        client_keys=[login.key],
        known_hosts=([], [], []),
        agent_path=None,
        gss_host=None,
        preferred_auth="publickey",
        kex_algs=KEX,
        server_host_key_algs=HOST_KEYS,
        encryption_algs=CIPHERS,
        compression_algs=["none"],
        login_timeout=login.login_timeout_s,
        keepalive_interval=0,
    )


async def log_in(
    vm: str, link: Link, login: Login, options: asyncssh.SSHClientConnectionOptions
) -> asyncssh.SSHClientConnection:
    """An authenticated connection over an open link, to a guest that named itself as that VM.

    Raises:
        GuestError: why not, in one line.
    """
    factory = partial(_Guest, vm, login.host_keys)
    try:
        connection = await _shake_hands(link, options, factory)
    except (asyncssh.Error, OSError, TimeoutError) as error:
        link.close()
        raise GuestError(f"guest {vm}: {why_no_login(error, login)}") from error
    except asyncio.CancelledError:
        link.close()
        raise
    try:
        await _check_name(vm, connection, login.command_timeout_s)
    except GuestError:
        connection.abort()
        raise
    return connection


async def _shake_hands(
    link: Link, options: asyncssh.SSHClientConnectionOptions, factory: Callable[[], _Guest]
) -> asyncssh.SSHClientConnection:
    if isinstance(link, Channel):
        more: dict[str, Any] = {"config": None, "options": options, "client_factory": factory}
        return await asyncssh.connect(link.address, tunnel=link, **more)
    return await asyncssh.run_client(link, config=None, options=options, client_factory=factory)


def why_no_login(error: Exception, login: Login) -> str:
    """What went wrong between banner and login."""
    if isinstance(error, asyncssh.PermissionDenied):
        return f"the key of this run is refused for user {login.user} (cloud-init not done, or another user)"
    if isinstance(error, asyncssh.HostKeyNotVerifiable):
        return "its host key is not the one that it showed first"
    if isinstance(error, asyncssh.KeyExchangeFailed):
        return f"no common algorithm: {error.reason}"
    if isinstance(error, TimeoutError) or "timeout" in str(error).lower():
        return f"the login did not end within {login.login_timeout_s:g} s"
    if isinstance(error, (asyncssh.ConnectionLost, OSError)):
        return "disconnected in the handshake"
    return f"disconnected in the handshake: {error}"


async def _check_name(vm: str, connection: asyncssh.SSHClientConnection, timeout_s: float) -> None:
    said = (await command(vm, connection, IDENTIFY, timeout_s)).decode(errors="replace").strip()
    if said.partition(".")[0] != vm:
        raise GuestError(f"guest {vm}: another machine answers at its address, it names itself {said[:80]!r}")


async def command(vm: str, connection: asyncssh.SSHClientConnection, line: str, timeout_s: float) -> bytes:
    """Run a command line; its standard output.

    Raises:
        GuestError: it failed, took too long, or the connection is gone.
    """
    return await _piped(vm, connection, (line, b""), timeout_s)


async def _piped(
    vm: str, connection: asyncssh.SSHClientConnection, what: tuple[str, bytes], timeout_s: float
) -> bytes:
    line, content = what
    # no input at all would leave the guest's end open, and a reader waiting
    given: dict[str, Any] = {"input": content} if content else {"stdin": asyncssh.DEVNULL}
    try:
        done = await connection.run(line, encoding=None, timeout=timeout_s, **given)
    except (asyncssh.TimeoutError, TimeoutError) as error:
        raise GuestError(f"guest {vm}: {_first_word(line)} did not end within {timeout_s:g} s") from error
    except (asyncssh.Error, OSError) as error:
        raise GuestError(f"guest {vm}: {_first_word(line)}: the connection is gone ({error})") from error
    if done.returncode:
        said = _bytes(done.stderr).decode(errors="replace").strip().splitlines()
        ended = f"exit status {done.returncode}" + (f": {said[-1][:200]}" if said else "")
        raise GuestError(f"guest {vm}: {_first_word(line)}: {ended}")
    return _bytes(done.stdout)


async def write_file(
    vm: str, connection: asyncssh.SSHClientConnection, file: tuple[str, bytes], timeout_s: float
) -> None:
    """Write a file whole or not at all: beside its place, then renamed.

    Raises:
        GuestError: it could not be written.
    """
    path, content = file
    place, draft = shlex.quote(path), shlex.quote(f"{path}.virtscale")
    whole = f"test $(wc -c < {draft}) -eq {len(content)}"
    folder = shlex.quote(str(PurePosixPath(path).parent))
    line = f"mkdir -p {folder} && cat > {draft} && {whole} && mv -f {draft} {place}"
    await _piped(vm, connection, (line, content), timeout_s)


async def read_file(vm: str, connection: asyncssh.SSHClientConnection, path: str, timeout_s: float) -> bytes:
    """Read a file.

    Raises:
        GuestError: there is none, or it cannot be read.
    """
    return await _piped(vm, connection, (f"cat -- {shlex.quote(path)}", b""), timeout_s)


def _first_word(line: str) -> str:
    return line.split(" ", 1)[0]


def _bytes(output: object) -> bytes:
    return output if isinstance(output, bytes) else b""
