"""What may happen to the servers of a testbed, done to them on purpose."""

import base64
import http.client
import json
import os
import signal
import time
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

from infra.testbed import apply, processes, servers
from infra.testbed.state import CONTEXT, State

ISSUER = "https://kubernetes.default.svc"
ACCOUNT = "virtscale"
DAY_S = 86_400
CACHED_S = 10.0
"""How long the API server goes on to believe a token that it has seen."""
AWAY_S = 6.0
"""Longer than a profile's `limits.api_unavailable_s`."""


def end_api_server(testbed: State, number: signal.Signals = signal.SIGKILL) -> None:
    """End the API server at once."""
    _end(testbed, servers.API_SERVER, number)


def start_api_server(testbed: State, *more: str) -> None:
    """Start the API server, with flags beside its own or instead of them; returns when it is ready."""
    _start(testbed, servers.API_SERVER, _merged(servers._api_server_flags(testbed), more))
    servers._wait(testbed, servers.API_SERVER, lambda: apply.request(testbed, "GET", "/readyz")[0] == 200)


def restart_api_server(testbed: State, *more: str) -> None:
    """Between two storms: the same data, other flags."""
    end_api_server(testbed, signal.SIGTERM)
    start_api_server(testbed, *more)


def kill_api_server(testbed: State) -> None:
    """kill -9, and a start after a while."""
    end_api_server(testbed)
    time.sleep(AWAY_S)
    start_api_server(testbed)


def stop_etcd(testbed: State, pause_s: float) -> None:
    """No etcd for so long."""
    _end(testbed, servers.ETCD, signal.SIGTERM)
    time.sleep(pause_s)
    _start(testbed, servers.ETCD, servers._etcd_flags(testbed))
    servers._wait(testbed, servers.ETCD, lambda: servers._etcd_is_healthy(testbed))


def hang_etcd(testbed: State, pause_s: float) -> None:
    """An etcd that answers nothing for so long, and then everything."""
    process = servers.process(testbed.folder, servers.ETCD)
    assert process is not None
    os.kill(process.pid, signal.SIGSTOP)
    try:
        time.sleep(pause_s)
    finally:
        os.kill(process.pid, signal.SIGCONT)


def compact_history(testbed: State) -> None:
    """Forget every version but the present one."""
    status = _etcd(testbed, "/v3/maintenance/status", {})
    _etcd(testbed, "/v3/kv/compaction", {"revision": status["header"]["revision"], "physical": True})


def account(testbed: State) -> str:
    """A ServiceAccount that may do everything, and is no member of system:masters; its UID."""
    apply.apply(
        testbed,
        [
            {
                "apiVersion": "v1",
                "kind": "ServiceAccount",
                "metadata": {"name": ACCOUNT, "namespace": "default"},
            },
            {
                "apiVersion": "rbac.authorization.k8s.io/v1",
                "kind": "ClusterRoleBinding",
                "metadata": {"name": f"{ACCOUNT}-of-the-tests"},
                "roleRef": {
                    "apiGroup": "rbac.authorization.k8s.io",
                    "kind": "ClusterRole",
                    "name": "cluster-admin",
                },
                "subjects": [{"kind": "ServiceAccount", "name": ACCOUNT, "namespace": "default"}],
            },
        ],
    )
    _, found = apply.request(testbed, "GET", f"/api/v1/namespaces/default/serviceaccounts/{ACCOUNT}")
    return str(found["metadata"]["uid"])


def token(testbed: State, uid: str, bound_to: str = "") -> str:
    """A token of that account for a day, or for as long as the Secret with this UID exists.

    One that the API gives is good for ten minutes at least, and nobody knows when a storm has its middle.
    """
    now = int(time.time())
    who: dict[str, Any] = {"namespace": "default", "serviceaccount": {"name": ACCOUNT, "uid": uid}}
    if bound_to:
        who["secret"] = {"name": ACCOUNT, "uid": bound_to}
    claims = {
        "iss": ISSUER,
        "aud": [ISSUER],
        "sub": f"system:serviceaccount:default:{ACCOUNT}",
        "iat": now,
        "nbf": now,
        "exp": now + DAY_S,
        "kubernetes.io": who,
    }
    signed = ".".join(_encoded(json.dumps(part).encode()) for part in ({"alg": "RS256"}, claims))
    key = serialization.load_pem_private_key((testbed.pki / "sa.key").read_bytes(), None)
    assert isinstance(key, rsa.RSAPrivateKey)
    return f"{signed}.{_encoded(key.sign(signed.encode(), padding.PKCS1v15(), hashes.SHA256()))}"


def bind_tokens(testbed: State) -> str:
    """A Secret for tokens to end with; its UID."""
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": ACCOUNT, "namespace": "default"}}
    apply.apply(testbed, [secret])
    _, found = apply.request(testbed, "GET", apply.object_path(secret))
    return str(found["metadata"]["uid"])


def end_tokens(testbed: State) -> None:
    """From now on, and after the API server's cache at the latest, no token bound to it is believed."""
    path = f"/api/v1/namespaces/default/secrets/{ACCOUNT}"
    assert apply.request(testbed, "DELETE", path)[0] == 200


def token_kubeconfig(testbed: State, folder: Path, server: str, first_token: str) -> tuple[Path, Path]:
    """A kubeconfig that logs in with a token file, and that file."""
    file, tokens = folder / "kubeconfig", folder / "token"
    tokens.write_text(first_token)
    tokens.chmod(0o600)
    cluster = {"server": server, "certificate-authority": str(testbed.pki / "ca.crt")}
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": CONTEXT, "cluster": cluster}],
        "users": [{"name": ACCOUNT, "user": {"tokenFile": str(tokens)}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": ACCOUNT}}],
        "current-context": CONTEXT,
    }
    file.write_text(json.dumps(document))
    return file, tokens


def _encoded(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()


def _merged(flags: Sequence[str], more: Sequence[str]) -> list[str]:
    named = {flag.partition("=")[0] for flag in more}
    return [flag for flag in flags if flag.partition("=")[0] not in named] + list(more)


def _start(testbed: State, name: str, flags: Sequence[str]) -> None:
    servers._start(testbed, name, flags)


def _end(testbed: State, name: str, number: signal.Signals) -> None:
    process = servers.process(testbed.folder, name)
    assert process is not None
    assert process.is_alive()
    if number is signal.SIGTERM:
        processes.stop([process])
        return
    os.kill(process.pid, number)
    while process.is_alive():
        processes._reap(process.pid)
        time.sleep(0.01)


def _etcd(testbed: State, path: str, body: dict[str, Any]) -> dict[str, Any]:
    with closing(http.client.HTTPConnection("127.0.0.1", testbed.etcd_port, timeout=30)) as connection:
        connection.request("POST", path, json.dumps(body), {"Content-Type": "application/json"})
        answer = connection.getresponse()
        text = answer.read()
    assert answer.status == 200, text
    found: dict[str, Any] = json.loads(text)
    return found
