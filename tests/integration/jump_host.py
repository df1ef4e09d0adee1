"""A jump host on this event loop: an SSH server that does nothing but forward TCP connections, and counts."""

from collections.abc import AsyncIterator, Awaitable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import asyncssh


@dataclass
class JumpHost:
    """`most`: channels that a connection may have, 0 is any. Counted: connections, how many of them were not
    logged in at once, how many channels one of them had.
    """

    most: int = 0
    connections: int = 0
    most_knocking: int = 0
    most_channels: int = 0
    knocking: int = 0


class Server(asyncssh.SSHServer):
    """One connection; its channels are counted until the guest refuses, and not when they close."""

    def __init__(self, host: JumpHost) -> None:
        self._host, self._channels = host, 0
        self._conn: asyncssh.SSHServerConnection | None = None

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._conn = conn
        self._host.connections += 1
        self._host.knocking += 1
        self._host.most_knocking = max(self._host.most_knocking, self._host.knocking)

    def auth_completed(self) -> None:
        self._host.knocking -= 1

    def connection_requested(
        self, dest_host: str, dest_port: int, orig_host: str, orig_port: int
    ) -> Awaitable[asyncssh.SSHTCPSession[bytes]]:
        if self._host.most and self._channels >= self._host.most:
            raise asyncssh.ChannelOpenError(asyncssh.OPEN_RESOURCE_SHORTAGE, "too many channels")
        self._channels += 1
        self._host.most_channels = max(self._host.most_channels, self._channels)
        return self._forward(dest_host, dest_port)  # type: ignore[return-value]

    async def _forward(self, host: str, port: int) -> object:
        assert self._conn
        try:
            return await self._conn.forward_connection(host, port)
        except asyncssh.ChannelOpenError:
            self._channels -= 1
            raise


@asynccontextmanager
async def jump_host(home: Path, host: JumpHost) -> AsyncIterator[str]:
    """Let the owner of `home` in; the name by which `ssh` gets there."""
    ssh = home / ".ssh"
    ssh.mkdir(exist_ok=True)
    key, host_key = (asyncssh.generate_private_key("ssh-ed25519") for _ in range(2))
    key.write_private_key(str(ssh / "id_ed25519"))
    key.write_public_key(str(ssh / "authorized_keys"))
    listening = await asyncssh.listen(
        "127.0.0.1",
        0,
        config=None,
        server_host_keys=[host_key],
        authorized_client_keys=str(ssh / "authorized_keys"),
        server_factory=lambda: Server(host),
    )
    port, line = listening.get_port(), host_key.export_public_key().decode().strip()
    (ssh / "known_hosts").write_text(f"[127.0.0.1]:{port} {line}\n")
    (ssh / "config").write_text(f"Host bastion\n  HostName 127.0.0.1\n  Port {port}\n  User ops\n")
    try:
        yield "bastion"
    finally:
        listening.close()
        await listening.wait_closed()
