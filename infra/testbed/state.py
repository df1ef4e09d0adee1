"""The state folder of one testbed: where things are in it, and what `state.json` says of it."""

import json
import os
import random
from dataclasses import asdict, dataclass
from pathlib import Path

from infra.errors import ClusterError
from infra.ports import is_free

CONTEXT = "virtscale-testbed"
DEFAULT_FOLDER = Path(__file__).parents[2] / ".testbed"
# Below the range from which Linux takes the ports of outgoing connections: a port chosen now and bound later
# must not be somebody's source port by then.
PORTS = range(20_000, 32_000)


@dataclass(frozen=True)
class State:
    """A testbed as `state.json` records it: its folder, and the loopback ports it uses.

    `agg_port` is where whoever serves subresources.kubevirt.io is to listen (see `virt_api.serving`).
    """

    folder: Path
    api_port: int
    etcd_port: int
    peer_port: int
    agg_port: int

    @property
    def pki(self) -> Path:
        """The folder of keys and certificates."""
        return self.folder / "pki"

    @property
    def kubeconfig(self) -> Path:
        """The kubeconfig of the testbed's administrator; its context is `virtscale-testbed`."""
        return self.folder / "kubeconfig"

    @property
    def server(self) -> str:
        """The API server's address."""
        return f"https://127.0.0.1:{self.api_port}"

    def log(self, name: str) -> Path:
        """The log of the server called `name`."""
        return self.folder / "logs" / f"{name}.log"

    def write(self) -> None:
        """Record this state in its folder, whole or not at all."""
        document = {
            **asdict(self),
            "folder": str(self.folder),
            "context": CONTEXT,
            "server": self.server,
            "kubeconfig": str(self.kubeconfig),
            "pki": {file.name: str(file) for file in sorted(self.pki.iterdir())},
        }
        unfinished = self.folder / "state.json.unfinished"
        unfinished.write_text(json.dumps(document, indent=1) + "\n")
        unfinished.replace(self.folder / "state.json")


def read(folder: Path) -> State | None:
    """The recorded state of `folder`, or None when no testbed was ever started there."""
    try:
        document = json.loads((folder / "state.json").read_text())
    except FileNotFoundError:
        return None
    ports = (int(document[name]) for name in ("api_port", "etcd_port", "peer_port", "agg_port"))
    return State(folder, *ports)


def for_kubeconfig(kubeconfig: Path) -> State:
    """The testbed whose kubeconfig this is.

    Raises:
        ClusterError: the file does not lie in a testbed's state folder.
    """
    state = read(kubeconfig.resolve().parent)
    if state is None:
        raise ClusterError(f"{kubeconfig}: not a testbed's kubeconfig; start one with `make testbed-up`")
    return state


def choose(folder: Path) -> State:
    """The state for a start: the recorded ports where they are still free, else new free ones."""
    recorded = read(folder)
    if recorded is not None and all(map(is_free, _ports(recorded))):
        return recorded
    return State(folder, *_free_ports(4))


def write_kubeconfig(state: State, file: Path, user: str) -> None:
    """Write a kubeconfig that logs in as `user` (a leaf of the pki), readable by the owner only."""
    cluster = {"server": state.server, "certificate-authority": str(state.pki / "ca.crt")}
    login = {
        "client-certificate": str(state.pki / f"{user}.crt"),
        "client-key": str(state.pki / f"{user}.key"),
    }
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": user, "user": login}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": user}}],
        "current-context": CONTEXT,
    }
    file.touch(mode=0o600)
    file.write_text(json.dumps(document, indent=1) + "\n")


def _ports(state: State) -> tuple[int, int, int, int]:
    return state.api_port, state.etcd_port, state.peer_port, state.agg_port


def _free_ports(count: int) -> list[int]:
    # Seeded by the process, so that two testbeds started at once look in different places.
    candidates = random.Random(os.getpid()).sample(PORTS, len(PORTS))
    free: list[int] = []
    for port in candidates:
        if is_free(port):
            free.append(port)
        if len(free) == count:
            return free
    raise ClusterError(f"no {count} free loopback ports between {PORTS.start} and {PORTS.stop}")
