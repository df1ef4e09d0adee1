"""Brings the servers of a testbed up and down; the order and every flag have their reasons here."""

import http.client
import json
import shutil
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack, closing, suppress
from pathlib import Path

from infra.errors import ClusterError
from infra.testbed import apply, binaries, crds, pki, processes, seed, state, virt_api
from infra.testbed.state import State

ETCD, API_SERVER, CONTROLLER_MANAGER = "etcd", "kube-apiserver", "kube-controller-manager"
SERVERS = (ETCD, API_SERVER, CONTROLLER_MANAGER)
READY_S = 240.0
POLL_S = 0.02
OWN_FOLDERS = ("etcd", "logs", "pids", "pki", "run")
OWN_FILES = ("kubeconfig", "controller-manager.kubeconfig", "audit-policy.json", "state.json")
AUDIT = "audit"
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [
        # The controller manager acts under accounts of its own.
        {"level": "None", "userGroups": ["system:serviceaccounts:kube-system"]},
        {"level": "Metadata", "userGroups": ["system:serviceaccounts"]},
        {"level": "None"},
    ],
}
"""What the API server writes down: every request of a ServiceAccount, and how it was decided."""
CONTROLLERS = (
    "namespace-controller",
    "garbage-collector-controller",
    "serviceaccount-controller",
    "clusterrole-aggregation-controller",
)


def up(folder: Path) -> State:
    """A running testbed in `folder`: started if it was not, untouched if it was.

    Raises:
        ClusterError: a binary could not be built, or a server did not become ready (with its last log line).
    """
    recorded = state.read(folder)
    if recorded is not None and all(is_alive(folder).values()):
        return recorded
    binaries.build()
    down(folder)
    folder.mkdir(parents=True, exist_ok=True)
    pki.ensure(folder / "pki")
    chosen = state.choose(folder)
    state.write_kubeconfig(chosen, chosen.kubeconfig, "admin")
    state.write_kubeconfig(chosen, folder / "controller-manager.kubeconfig", "controller-manager")
    (folder / "audit-policy.json").write_text(json.dumps(AUDIT_POLICY))
    chosen.write()
    _start_all(chosen)
    return chosen


def down(folder: Path) -> None:
    """End every server of the testbed in `folder`; fine when none runs. Its data stays for the next `up`."""
    running = {name: processes.recorded(_record(folder, name)) for name in SERVERS}
    clients = [running[name] for name in (CONTROLLER_MANAGER, API_SERVER)]
    processes.stop(process for process in clients if process)
    # etcd last: an API server that loses it logs errors, and may not end in time.
    processes.stop(process for process in (running[ETCD],) if process)
    for name in SERVERS:
        _record(folder, name).unlink(missing_ok=True)


def forget(folder: Path) -> None:
    """Remove what a testbed wrote into its state folder, and the folder when nothing else is in it."""
    if state.read(folder) is None:
        return
    for name in OWN_FOLDERS:
        shutil.rmtree(folder / name, ignore_errors=True)
    for name in OWN_FILES:
        (folder / name).unlink(missing_ok=True)
    if not any(folder.iterdir()):
        folder.rmdir()


def is_alive(folder: Path) -> dict[str, bool]:
    """For each server, whether it runs."""
    recorded = {name: processes.recorded(_record(folder, name)) for name in SERVERS}
    return {name: process is not None and process.is_alive() for name, process in recorded.items()}


def process(folder: Path, name: str) -> processes.Process | None:
    """The recorded process of the server called `name`, or None."""
    return processes.recorded(_record(folder, name))


def _start_all(chosen: State) -> None:
    with ExitStack() as undo:
        undo.callback(down, chosen.folder)
        # etcd first: an API server that finds no etcd backs off and takes seconds longer.
        _start(chosen, ETCD, _etcd_flags(chosen))
        _wait(chosen, ETCD, lambda: _etcd_is_healthy(chosen))
        _start(chosen, API_SERVER, _api_server_flags(chosen))
        _wait(chosen, API_SERVER, lambda: apply.request(chosen, "GET", "/readyz")[0] == 200)
        _load(chosen)
        # After the CRDs: its garbage collector looks for new kinds only every 30 s.
        _start(chosen, CONTROLLER_MANAGER, _controller_manager_flags(chosen))
        undo.pop_all()


def _load(chosen: State) -> None:
    definitions = crds.load()
    for notice in definitions.notices:
        print(f"NOTICE: {notice}", flush=True)
    apply.apply(chosen, definitions.crds)
    # A server of subresources.kubevirt.io that was killed leaves its registration behind, and with nobody
    # answering there no namespace can be deleted.
    virt_api.unregister(chosen)
    seed.apply_seed(chosen)


def _start(chosen: State, name: str, flags: Sequence[str]) -> None:
    command: list[str | Path] = [binaries.paths()[name], *flags]
    processes.start(command, chosen.log(name), _record(chosen.folder, name))


def _wait(chosen: State, name: str, is_ready: Callable[[], bool]) -> None:
    deadline = time.monotonic() + READY_S
    while True:
        with suppress(OSError, http.client.HTTPException):
            if is_ready():
                return
        if not is_alive(chosen.folder)[name]:
            raise ClusterError(f"{name} ended while starting: {_last_line(chosen.log(name))}")
        if time.monotonic() > deadline:
            raise ClusterError(f"{name} not ready after {READY_S:.0f} s: {_last_line(chosen.log(name))}")
        time.sleep(POLL_S)


def _etcd_is_healthy(chosen: State) -> bool:
    with closing(http.client.HTTPConnection("127.0.0.1", chosen.etcd_port, timeout=2)) as connection:
        connection.request("GET", "/health")
        return connection.getresponse().status == 200


def _last_line(log: Path) -> str:
    lines = log.read_text(errors="replace").strip().splitlines() if log.exists() else []
    return f"{lines[-1][:300]} ({log})" if lines else f"no log at {log}"


def _record(folder: Path, name: str) -> Path:
    return folder / "pids" / f"{name}.json"


def _etcd_flags(chosen: State) -> list[str]:
    client = f"http://127.0.0.1:{chosen.etcd_port}"
    peer = f"http://127.0.0.1:{chosen.peer_port}"
    return [
        "--name=testbed",
        f"--data-dir={chosen.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=testbed={peer}",
        "--initial-cluster-state=new",
        # Nothing here must outlive a power cut.
        "--unsafe-no-fsync",
        "--quota-backend-bytes=8589934592",
        "--snapshot-count=50000",
        "--log-level=warn",
    ]


def _api_server_flags(chosen: State) -> list[str]:
    keys = chosen.pki
    issuer = "https://kubernetes.default.svc"
    return [
        f"--etcd-servers=http://127.0.0.1:{chosen.etcd_port}",
        "--bind-address=127.0.0.1",
        "--advertise-address=127.0.0.1",
        f"--secure-port={chosen.api_port}",
        # Loopback endpoints are refused by validation.
        "--endpoint-reconciler-type=none",
        "--service-cluster-ip-range=10.0.0.0/24",
        "--allow-privileged=true",
        f"--cert-dir={chosen.folder / 'run'}",
        f"--tls-cert-file={keys / 'apiserver.crt'}",
        f"--tls-private-key-file={keys / 'apiserver.key'}",
        f"--client-ca-file={keys / 'ca.crt'}",
        "--authorization-mode=RBAC",
        f"--service-account-issuer={issuer}",
        f"--api-audiences={issuer}",
        f"--service-account-key-file={keys / 'sa.pub'}",
        f"--service-account-signing-key-file={keys / 'sa.key'}",
        *_front_proxy_flags(keys),
        # ServiceAccount would want one in each pod; the storage protection puts a finalizer on every PVC
        # which nothing here removes.
        "--disable-admission-plugins=ServiceAccount,TaintNodesByCondition,StorageObjectInUseProtection",
        f"--audit-policy-file={chosen.folder / 'audit-policy.json'}",
        f"--audit-log-path={chosen.log(AUDIT)}",
        "--profiling=false",
        "--shutdown-delay-duration=0s",
    ]


def _front_proxy_flags(keys: Path) -> list[str]:
    return [
        f"--requestheader-client-ca-file={keys / 'front-proxy-ca.crt'}",
        f"--requestheader-allowed-names={virt_api.FRONT_PROXY_NAME}",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={keys / 'front-proxy-client.crt'}",
        f"--proxy-client-key-file={keys / 'front-proxy-client.key'}",
    ]


def _controller_manager_flags(chosen: State) -> list[str]:
    return [
        f"--kubeconfig={chosen.folder / 'controller-manager.kubeconfig'}",
        "--leader-elect=false",
        # Without it every action of the namespace and garbage collectors is forbidden.
        "--use-service-account-credentials=true",
        f"--controllers={','.join(CONTROLLERS)}",
        f"--service-account-private-key-file={chosen.pki / 'sa.key'}",
        f"--root-ca-file={chosen.pki / 'ca.crt'}",
        "--concurrent-gc-syncs=20",
        "--concurrent-namespace-syncs=10",
        "--kube-api-qps=500",
        "--kube-api-burst=1000",
        f"--cert-dir={chosen.folder / 'run'}",
        "--bind-address=127.0.0.1",
        "--secure-port=0",
        "--profiling=false",
    ]
