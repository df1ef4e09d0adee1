"""What the adapter makes of servers that misbehave: a small HTTP server of the test's own does."""

import asyncio
import json
import socket
from collections.abc import Awaitable, Callable
from contextlib import aclosing
from pathlib import Path

import pytest
from aiohttp import web

from infra.cluster.kinds import NAMESPACE
from infra.cluster.port import Ref, Scope, WatchBatch, departing
from infra.cluster.real import KubernetesCluster, connect
from infra.cluster.real import session as session_module
from infra.cluster.real.login import Login
from infra.errors import (
    ClusterError,
    Denied,
    Expired,
    Forbidden,
    Gone,
    NotFound,
    StageError,
    Throttled,
    Unavailable,
    Unknown,
    Unreachable,
)

Handler = Callable[[web.Request], Awaitable[web.StreamResponse]]
OBJECT = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
REF = Ref(NAMESPACE, "", "n")
ADDED = json.dumps({"type": "ADDED", "object": OBJECT}).encode() + b"\n"


def serve(tmp_path: Path, handler: Handler, use: Callable[[KubernetesCluster], Awaitable[None]]) -> None:
    """Connect to a server that answers a new client by itself, everything else by `handler`; `use` it."""

    async def version(_: web.Request) -> web.StreamResponse:
        return web.json_response({"gitVersion": "v1.36.0"})

    async def main() -> None:
        app = web.Application()
        app.add_routes(
            [web.get("/version", version), web.get("/api", version), web.route("*", "/{path:.*}", handler)]
        )
        runner = web.AppRunner(app, shutdown_timeout=0.1)
        await runner.setup()
        site = web.TCPSite(runner, "127.0.0.1", 0)
        await site.start()
        cluster = await connect("c", write_kubeconfig(tmp_path, runner.addresses[0][1], {"token": "first"}))
        try:
            await use(cluster)
        finally:
            await cluster.close()
            await runner.cleanup()

    asyncio.run(main())


def write_kubeconfig(folder: Path, port: int, user: dict[str, object]) -> str:
    document = {
        "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}],
        "users": [{"name": "u", "user": user}],
        "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
        "current-context": "c",
    }
    file = folder / "kubeconfig"
    file.write_text(json.dumps(document))
    return str(file)


async def hang_up(request: web.Request) -> web.StreamResponse:
    assert request.transport is not None
    request.transport.abort()
    return web.Response()


def test_a_lost_answer_is_unknown_for_a_write_and_unavailable_for_a_read(tmp_path: Path) -> None:
    async def use(cluster: KubernetesCluster) -> None:
        with pytest.raises(Unknown, match="may or may not") as lost:
            await cluster.create(OBJECT)
        assert lost.value.__cause__ is not None
        with pytest.raises(Unavailable):
            await cluster.get(REF)

    serve(tmp_path, hang_up, use)


@pytest.mark.parametrize(
    ("status", "expected_of_write", "expected_of_read"),
    [
        (401, Expired, Expired),
        (403, Denied, Forbidden),
        (404, NotFound, NotFound),
        (410, Gone, Gone),
        (500, Unavailable, Unavailable),
        (503, Unavailable, Unavailable),
        (504, Unknown, Unavailable),
    ],
)
def test_a_status_is_the_error_that_says_what_to_do(
    tmp_path: Path, status: int, expected_of_write: type[ClusterError], expected_of_read: type[ClusterError]
) -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "message": "because", "code": status}, status=status)

    async def use(cluster: KubernetesCluster) -> None:
        with pytest.raises(expected_of_write, match=f"create Namespace n: {status} because"):
            await cluster.create(OBJECT)
        with pytest.raises(expected_of_read):
            await cluster.get(REF)

    serve(tmp_path, refuse, use)


def test_a_missing_role_is_told_from_a_refused_object(tmp_path: Path) -> None:
    said = [
        'vms is forbidden: User "u" cannot create resource "vms"',
        'vms "n" is forbidden: exceeded quota: count',
    ]

    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.json_response({"kind": "Status", "message": said.pop(0), "code": 403}, status=403)

    async def use(cluster: KubernetesCluster) -> None:
        with pytest.raises(Forbidden, match="cannot create"):
            await cluster.create(OBJECT)
        with pytest.raises(Denied, match=r"create Namespace n: 403 .*exceeded quota: count"):
            await cluster.create(OBJECT)

    serve(tmp_path, refuse, use)


def test_429_carries_the_servers_own_waiting_time(tmp_path: Path) -> None:
    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.Response(
            status=429, text="Too many requests, please try again later.", headers={"Retry-After": "7"}
        )

    async def use(cluster: KubernetesCluster) -> None:
        with pytest.raises(Throttled) as throttled:
            await cluster.create(OBJECT)
        assert throttled.value.retry_after_s == 7.0

    serve(tmp_path, refuse, use)


def test_a_token_that_ran_out_is_fetched_again_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(session_module, "LOGIN_PAUSE_S", 0.0)
    seen: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.headers["Authorization"])
        is_new = seen[-1] == "Bearer second"
        return web.json_response(
            OBJECT if is_new else {"message": "Unauthorized"}, status=200 if is_new else 401
        )

    async def use(cluster: KubernetesCluster) -> None:
        with pytest.raises(Forbidden):
            await cluster.get(REF)
        write_kubeconfig(tmp_path, int(cluster.server.rpartition(":")[2]), {"token": "second"})
        assert list(await asyncio.gather(cluster.get(REF), cluster.get(REF))) == [OBJECT, OBJECT]

    serve(tmp_path, answer, use)
    assert seen == ["Bearer first"] * 3 + ["Bearer second"] * 2


async def received(cluster: KubernetesCluster) -> list[WatchBatch]:
    batches: list[WatchBatch] = []
    async with aclosing(cluster.watch(Scope(NAMESPACE), "1")) as stream:
        async for batch in stream:
            batches.append(batch)
    return batches


def test_events_before_an_error_event_are_delivered_and_a_410_is_gone(tmp_path: Path) -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        expired = {"kind": "Status", "code": 410, "reason": "Expired", "message": "too old resource version"}
        await response.write(ADDED + json.dumps({"type": "ERROR", "object": expired}).encode() + b"\n")
        return response

    async def use(cluster: KubernetesCluster) -> None:
        watch = cluster.watch(Scope(NAMESPACE), "1")
        assert (await anext(watch)).events == [("ADDED", OBJECT)]
        with pytest.raises(Gone, match="too old resource version"):
            await anext(watch)

    serve(tmp_path, stream, use)


def test_an_event_in_pieces_is_whole_and_a_clean_end_is_no_error(tmp_path: Path) -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        for piece in (ADDED[:10], ADDED[10:] + ADDED[:20], ADDED[20:]):
            await response.write(piece)
            await asyncio.sleep(0.02)
        return response

    async def use(cluster: KubernetesCluster) -> None:
        batches = await received(cluster)
        assert [event.type for batch in batches for event in batch.events] == ["ADDED", "ADDED"]
        assert batches[0].received_ns < batches[1].received_ns

    serve(tmp_path, stream, use)


@pytest.mark.parametrize("is_cut_within_an_event", [True, False])
def test_a_watch_whose_connection_breaks_is_unavailable(
    tmp_path: Path, *, is_cut_within_an_event: bool
) -> None:
    async def stream(request: web.Request) -> web.StreamResponse:
        response = web.StreamResponse()
        await response.prepare(request)
        await response.write(ADDED[:-5] if is_cut_within_an_event else ADDED)
        if not is_cut_within_an_event:
            await asyncio.sleep(0.02)
            assert request.transport is not None
            request.transport.abort()
        return response

    async def use(cluster: KubernetesCluster) -> None:
        with pytest.raises(Unavailable):
            await received(cluster)

    serve(tmp_path, stream, use)


def test_a_login_plugin_gives_the_token(tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    status = {"token": "from-plugin"}
    credential = {"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential", "status": status}
    plugin.write_text(f"#!/bin/sh\necho '{json.dumps(credential)}'\n")
    plugin.chmod(0o755)

    async def answer(request: web.Request) -> web.StreamResponse:
        return web.json_response({"seen": request.headers["Authorization"]})

    async def use(cluster: KubernetesCluster) -> None:
        port = int(cluster.server.rpartition(":")[2])
        user = {"exec": {"apiVersion": credential["apiVersion"], "command": str(plugin)}}
        other = await connect("c", write_kubeconfig(tmp_path, port, dict(user)))
        try:
            assert await other.get(REF) == {"seen": "Bearer from-plugin"}
        finally:
            await other.close()

    serve(tmp_path, answer, use)


@pytest.mark.parametrize(
    "text", ["", "[]", "{", "contexts: 1", "contexts: [{name: c, context: {cluster: none}}]"]
)
def test_a_broken_kubeconfig_is_said_in_one_line(tmp_path: Path, text: str) -> None:
    file = tmp_path / "kubeconfig"
    file.write_text(text)
    with pytest.raises(Unreachable) as refused:
        asyncio.run(connect("c", str(file)))
    assert str(file) in str(refused.value)
    assert "\n" not in str(refused.value)


SERVER = {"server": "https://127.0.0.1:1"}
SERVED = {"name": "c", "cluster": SERVER}
NAMED = {"name": "c", "context": {"cluster": "c", "user": "ghost"}}
NOT_USABLE: dict[str, dict[str, object]] = {
    "its user 'ghost' is not there; there is: u": {"users": [{"name": "u", "user": {}}]},
    "its user 'ghost' is not there; there is: none": {"users": []},
    "its user 'ghost' is empty": {"users": [{"name": "ghost", "user": None}]},
    "it names no user": {"contexts": [{"name": "c", "context": {"cluster": "c"}}]},
    "its cluster 'c' is not there; there is: d": {"clusters": [{**SERVED, "name": "d"}]},
    "its cluster has no server": {"clusters": [{"name": "c", "cluster": {}}]},
    "its certificate or key: ": {
        "clusters": [{"name": "c", "cluster": {**SERVER, "certificate-authority-data": "eHh4"}}],
        "users": [{"name": "ghost", "user": {}}],
    },
    "its context 'c' is empty": {"contexts": [{"name": "c", "context": None}]},
    "its file '/nope' is not there": {"users": [{"name": "ghost", "user": {"client-certificate": "/nope"}}]},
    "its file '/nope' cannot be read": {"users": [{"name": "ghost", "user": {"tokenFile": "/nope"}}]},
}


@pytest.mark.parametrize("problem", NOT_USABLE)
def test_what_a_context_names_and_is_not_there_is_said_with_what_to_do(tmp_path: Path, problem: str) -> None:
    file = tmp_path / "kubeconfig"
    whole = {"clusters": [SERVED], "contexts": [NAMED], "users": [], "current-context": "c"}
    file.write_text(json.dumps({**whole, **NOT_USABLE[problem]}))
    with pytest.raises(Unreachable) as refused:
        asyncio.run(connect("c", str(file)))
    assert problem in str(refused.value)
    assert str(refused.value).endswith("; correct the file, or log in again")


@pytest.mark.parametrize("section", ["contexts", "users"])
def test_a_section_that_is_no_list_of_names_is_said_in_one_line(tmp_path: Path, section: str) -> None:
    file = tmp_path / "kubeconfig"
    whole = {"clusters": [SERVED], "contexts": [NAMED], "users": [], "current-context": "c"}
    file.write_text(json.dumps({**whole, section: [{"user": {}}]}))
    with pytest.raises(Unreachable, match=f"not every one of its {section} has a name"):
        asyncio.run(connect("c", str(file)))


@pytest.mark.parametrize("place", ["kubeconfig", "environment", "environment, without http://"])
def test_a_proxy_that_does_not_answer_is_named_without_its_password(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, place: str
) -> None:
    with socket.socket() as unused:
        unused.bind(("127.0.0.1", 0))
        proxy = f"127.0.0.1:{unused.getsockname()[1]}"
        url, server = f"http://who:SECRET@{proxy}", "http://192.0.2.1:6443"
        if place != "kubeconfig":
            monkeypatch.setenv("http_proxy", url if place == "environment" else proxy)
        asked = {"server": server, **({"proxy-url": url} if place == "kubeconfig" else {})}
        file = tmp_path / "kubeconfig"
        whole = {"clusters": [{"name": "c", "cluster": asked}], "contexts": [NAMED], "current-context": "c"}
        file.write_text(json.dumps({**whole, "users": [{"name": "ghost", "user": {}}]}))
        with pytest.raises(Unreachable, match=f"{server}, through the proxy http://{proxy} ") as refused:
            asyncio.run(connect("c", str(file)))
    assert "SECRET" not in str(refused.value)


def login_plugin(tmp_path: Path, script: str) -> str:
    """A kubeconfig whose user logs in by a plugin that does this."""
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\n{script}\n")
    plugin.chmod(0o755)
    return write_kubeconfig(
        tmp_path, 1, {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": str(plugin)}}
    )


def test_a_login_plugin_that_fails_is_said_in_one_line_with_its_own_words(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(Unreachable, match=r"login plugin '.*plugin' gave no credentials: .*please log in"):
        asyncio.run(connect("c", login_plugin(tmp_path, "echo please log in >&2; exit 3")))
    assert capfd.readouterr() == ("", "")


def test_a_login_plugin_that_never_answers_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("infra.cluster.real.kubeconfig.LOGIN_S", 0.2)
    with pytest.raises(Unreachable, match=r"plugin '.*plugin' gave no answer within 0\.2 s: run it by hand"):
        asyncio.run(connect("c", login_plugin(tmp_path, "exec sleep 60")))


def test_a_refused_token_is_asked_for_again_once_for_all_its_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    logins = 0

    async def refuse(_: web.Request) -> web.StreamResponse:
        return web.json_response({"message": "Unauthorized"}, status=401)

    async def use(cluster: KubernetesCluster) -> None:
        session = cluster._session
        again = session_module.log_in

        async def counted(context: str, kubeconfig: str) -> Login:
            nonlocal logins
            logins += 1
            return await again(context, kubeconfig)

        monkeypatch.setattr(session_module, "log_in", counted)
        answers = await asyncio.gather(*(cluster.get(REF) for _ in range(20)), return_exceptions=True)
        assert {type(answer) for answer in answers} == {Expired}
        assert session.login.authorization == "Bearer first"

    serve(tmp_path, refuse, use)
    assert logins == 1


def test_a_request_that_is_held_back_at_its_turn_is_never_sent(tmp_path: Path) -> None:
    seen: list[str] = []

    async def answer(request: web.Request) -> web.StreamResponse:
        seen.append(request.method)
        return web.json_response(OBJECT)

    def no() -> None:
        raise StageError("not now")

    async def use(cluster: KubernetesCluster) -> None:
        token = departing.set(no)
        with pytest.raises(StageError, match="not now"):
            await cluster.create(OBJECT)
        departing.reset(token)
        await cluster.get(REF)

    serve(tmp_path, answer, use)
    assert seen == ["GET"]
