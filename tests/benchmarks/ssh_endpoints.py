"""A light SSH server process: thousands of addresses of 127.0.0.0/8, each coming up at its own moment.

Reads a plan (JSON) on standard input, says `ready` on standard output, takes the moment at which the
storm begins (monotonic ns) as a line, and writes the truth, a JSON object, when standard input ends.
"""

import asyncio
import json
import resource
import socket
import sys
import time
from functools import partial
from typing import Any, TypedDict

import asyncssh

from infra.guests.ssh.login import CIPHERS, KEX


class EndPoint(TypedDict):
    """An address and its `kind`: good, slow, filtered, silent, wrong, refuses, disconnects, stranger."""

    vm: str
    address: str
    kind: str
    at_s: float


class Truth(TypedDict, total=False):
    """Observed at the server, monotonic ns: just before and after it listened, banner sent, command run."""

    asked: int
    listening: int
    banner: int
    command: int


SLOW_BANNER_S = 1.0


class Server(asyncssh.SSHServer):
    def __init__(self, point: EndPoint, truth: Truth) -> None:
        self._point, self._truth = point, truth

    def connection_made(self, conn: asyncssh.SSHServerConnection) -> None:
        self._truth.setdefault("banner", time.monotonic_ns())

    def begin_auth(self, username: str) -> bool:
        return True

    def public_key_auth_supported(self) -> bool:
        return True

    def validate_public_key(self, username: str, key: asyncssh.SSHKey) -> bool:
        return self._point["kind"] != "refuses"


class EndPoints:
    def __init__(self, plan: list[EndPoint], port: int) -> None:
        self.truths: dict[str, Truth] = {point["vm"]: {} for point in plan}
        self._plan, self._port = plan, port
        self._listening: list[socket.socket] = []
        self._kept: list[socket.socket] = []
        self._tasks: set[asyncio.Task[None]] = set()
        self._options = asyncssh.SSHServerConnectionOptions(
            config=None,
            server_host_keys=[asyncssh.generate_private_key("ssh-ed25519")],
            kex_algs=KEX,
            encryption_algs=CIPHERS,
            compression_algs=["none"],
            gss_host=None,
        )

    async def play(self, start_ns: int) -> None:
        for point in sorted(self._plan, key=lambda each: each["at_s"]):
            wait_s = start_ns / 1e9 + point["at_s"] - time.monotonic()
            if wait_s > 0:
                await asyncio.sleep(wait_s)
            self._listen(point)

    def close(self) -> None:
        """Nobody listens any more."""
        for sock in self._listening:
            asyncio.get_running_loop().remove_reader(sock)
        for sock in (*self._listening, *self._kept):
            sock.close()

    def _listen(self, point: EndPoint) -> None:
        sock = socket.socket()
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setblocking(False)
        sock.bind((point["address"], self._port))
        if point["kind"] == "filtered":
            self._kept.append(sock)
            sock.listen(0)
            self._fill(point["address"])
            return
        self._listening.append(sock)
        self.truths[point["vm"]]["asked"] = time.monotonic_ns()
        sock.listen(16)
        self.truths[point["vm"]]["listening"] = time.monotonic_ns()
        asyncio.get_running_loop().add_reader(sock, self._accept, sock, point)

    def _fill(self, address: str) -> None:
        """With its backlog full, Linux drops further SYNs."""
        for _ in range(2):
            filler = socket.socket()
            filler.setblocking(False)
            filler.connect_ex((address, self._port))
            self._kept.append(filler)

    def _accept(self, listening: socket.socket, point: EndPoint) -> None:
        try:
            sock, _ = listening.accept()
        except BlockingIOError:
            return
        sock.setblocking(False)
        kind = point["kind"]
        self._kept.append(sock)
        if kind == "wrong":
            sock.send(b"220 mail.example ESMTP\r\n")
        elif kind == "disconnects":
            sock.send(b"SSH-2.0-OpenSSH_9.6\r\n")
            asyncio.get_running_loop().add_reader(sock, self._hang_up, sock)
        elif kind != "silent":
            task = asyncio.create_task(self._serve(sock, point))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    def _hang_up(self, sock: socket.socket) -> None:
        asyncio.get_running_loop().remove_reader(sock)
        sock.close()

    async def _serve(self, sock: socket.socket, point: EndPoint) -> None:
        truth = self.truths[point["vm"]]
        if point["kind"] == "slow":
            await asyncio.sleep(SLOW_BANNER_S)
        try:
            await asyncssh.run_server(
                sock,
                config=None,
                options=self._options,
                server_factory=partial(Server, point, truth),
                process_factory=partial(self._command, point, truth),
            )
        except (asyncssh.Error, OSError):
            return

    async def _command(
        self, point: EndPoint, truth: Truth, process: "asyncssh.SSHServerProcess[str]"
    ) -> None:
        truth.setdefault("command", time.monotonic_ns())
        if process.command == "uname -n":
            process.stdout.write("someone-else\n" if point["kind"] == "stranger" else point["vm"] + "\n")
            process.exit(0)
            return
        shell = await asyncio.create_subprocess_shell(
            process.command or "false",
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
        )
        out, err = await shell.communicate((await process.stdin.read()).encode())
        process.stdout.write(out.decode())
        process.stderr.write(err.decode())
        process.exit(shell.returncode or 0)


async def serve(plan: list[EndPoint], port: int) -> dict[str, Any]:
    loop = asyncio.get_running_loop()
    points = EndPoints(plan, port)
    print("ready", flush=True)
    start = await loop.run_in_executor(None, sys.stdin.readline)
    playing = asyncio.create_task(points.play(int(start)))
    await loop.run_in_executor(None, sys.stdin.readline)
    playing.cancel()
    return dict(points.truths)


def main() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    asked = json.loads(sys.stdin.readline())
    print(json.dumps(asyncio.run(serve(asked["plan"], asked["port"]))), flush=True)


if __name__ == "__main__":
    main()
