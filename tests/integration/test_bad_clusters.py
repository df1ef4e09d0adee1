"""A cluster that cannot be used is one line: where, what, what to do; exit code 2, and nothing is created."""

import asyncio
import json
import ssl
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from aiohttp import web
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from flows.__main__ import exit_code_of

RUN = ("run", "--no-prefect", "--profile", "smoke", "--cluster", "c")


ABSENT = ("kubevirt.io", "snapshot.storage.k8s.io")
NOT_MADE = ("selfsubject", "leases", "dryRun=All")
"""Questions, the lock of the cluster, and what is only tried."""


class Servant:
    """An API server that has nothing, and no kind of KubeVirt's; `made` is what it was asked to create."""

    def __init__(self, version: object) -> None:
        self.version, self.made, self.port = version, list[str](), 0

    async def answer(self, request: web.Request) -> web.StreamResponse:
        path = request.path_qs
        if path == "/version":
            return web.json_response(self.version)
        if any(group in path for group in ABSENT):
            return web.json_response({"message": "the server could not find the resource"}, status=404)
        if request.method == "GET":
            is_list = request.path.rpartition("/")[2].endswith("s")
            empty = {"items": [], "metadata": {"resourceVersion": "1"}}
            return web.json_response(
                empty if is_list else {"message": "not found"}, status=200 if is_list else 404
            )
        if not any(word in path for word in NOT_MADE):
            self.made.append(f"{request.method} {path}")
        body = await request.json()
        body.setdefault("metadata", {}).update({"resourceVersion": "2", "uid": "u"})
        return web.json_response({**body, "status": {"allowed": True}}, status=201)


@contextmanager
def serving(version: object, tls: ssl.SSLContext | None = None) -> Iterator[Servant]:
    """On a port of its own, in a thread, for the length of the block."""
    servant, loop, ready = Servant(version), asyncio.new_event_loop(), threading.Event()

    async def start() -> web.AppRunner:
        app = web.Application()
        app.add_routes([web.route("*", "/{path:.*}", servant.answer)])
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        await web.TCPSite(runner, "127.0.0.1", 0, ssl_context=tls).start()
        servant.port = runner.addresses[0][1]
        return runner

    def work() -> None:
        runner = loop.run_until_complete(start())
        ready.set()
        loop.run_forever()
        loop.run_until_complete(runner.cleanup())
        loop.close()

    thread = threading.Thread(target=work)
    thread.start()
    try:
        assert ready.wait(10)
        yield servant
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(10)


def kubeconfig(folder: Path, server: str, cluster: dict[str, str], user: dict[str, object]) -> Path:
    document = {
        "clusters": [{"name": "c", "cluster": {"server": server, **cluster}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(document))
    return file


def certificate(folder: Path, name: str, *, days: int) -> Path:
    """A certificate of 127.0.0.1 that signs itself, good until so many days from now; its key beside it."""
    key, who = (
        ec.generate_private_key(ec.SECP256R1()),
        x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]),
    )
    end = datetime.now(UTC) + timedelta(days=days)
    names = x509.SubjectAlternativeName([x509.DNSName("localhost")])
    builder = x509.CertificateBuilder(who, who, key.public_key(), x509.random_serial_number())
    dated = builder.not_valid_before(end - timedelta(days=30)).not_valid_after(end)
    made = dated.add_extension(names, critical=False).sign(key, hashes.SHA256())
    pem, private = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
    (folder / f"{name}.crt").write_bytes(made.public_bytes(pem))
    (folder / f"{name}.key").write_bytes(key.private_bytes(pem, private, serialization.NoEncryption()))
    return folder / f"{name}.crt"


def serving_tls(file: Path) -> ssl.SSLContext:
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(file, file.with_suffix(".key"))
    return context


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> object:
    """The one line that a run says of such a cluster."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("VIRTSCALE_STATE", str(tmp_path / "state"))

    def refuse(config: Path) -> str:
        monkeypatch.setenv("KUBECONFIG", str(config))
        assert exit_code_of(RUN) == 2
        printed = capsys.readouterr()
        (line,) = (line for line in printed.err.splitlines() if not line.startswith(("run ", "smoke on ")))
        assert "Traceback" not in printed.err
        return line

    return refuse


def test_an_old_api_server_is_refused_with_the_version_it_takes(refused, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with serving({"gitVersion": "v1.24.17"}) as servant:
        line = refused(kubeconfig(tmp_path, f"http://127.0.0.1:{servant.port}", {}, {"token": "t"}))
    assert line.endswith("cannot be used: it is Kubernetes v1.24.17; virtscale needs v1.25 or later")
    assert servant.made == []


def test_a_web_server_is_no_api_server(refused, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with serving({"hello": "world"}) as servant:
        line = refused(kubeconfig(tmp_path, f"http://127.0.0.1:{servant.port}", {}, {"token": "t"}))
    assert line.endswith("cannot be used: it does not answer as a Kubernetes API server does")


@pytest.mark.parametrize(
    ("days", "trusts", "said"),
    [(-1, "own", "certificate has expired"), (10, "other", "certificate verify failed")],
    ids=["expired", "of an authority that is not trusted"],
)
def test_a_wrong_certificate_is_said(refused, tmp_path: Path, days: int, trusts: str, said: str) -> None:  # type: ignore[no-untyped-def]
    own, other = certificate(tmp_path, "own", days=days), certificate(tmp_path, "other", days=10)
    trusted = {"certificate-authority": str(own if trusts == "own" else other)}
    with serving({"gitVersion": "v1.36.0"}, serving_tls(own)) as servant:
        line = refused(kubeconfig(tmp_path, f"https://localhost:{servant.port}", trusted, {"token": "t"}))
    assert said in line


def test_a_client_certificate_that_cannot_be_read_is_said(refused, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    user = {"client-certificate": str(tmp_path / "absent.crt"), "client-key": str(tmp_path / "absent.key")}
    line = refused(kubeconfig(tmp_path, "https://127.0.0.1:1", {}, dict(user)))
    assert "absent.crt" in line


def test_a_failing_login_plugin_is_said(refused, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    plugin = {"apiVersion": "client.authentication.k8s.io/v1", "command": "false"}
    line = refused(kubeconfig(tmp_path, "https://127.0.0.1:1", {}, {"exec": plugin}))
    assert "login plugin 'false' gave no credentials: exec: process returned 1" in line


def test_a_cluster_without_kubevirt_is_refused_by_preflight(refused, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    with serving({"gitVersion": "v1.36.0"}) as servant:
        line = refused(kubeconfig(tmp_path, f"http://127.0.0.1:{servant.port}", {}, {"token": "t"}))
    assert "virtualmachines served: kubevirt.io/v1, kubevirt.io/v1 is not served; install KubeVirt" in line
    assert servant.made == []
