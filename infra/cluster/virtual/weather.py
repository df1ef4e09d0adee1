"""Timed faults: what happens to the API, the nodes and the storage after a batch was released.

Without a plan nothing of this exists. With one, the run's own client goes through `ExposedClient`,
so nothing is added to what controllers do, except that they wait while the API is away.
"""

import asyncio
from collections.abc import Callable
from contextlib import suppress
from itertools import count

from infra.cluster.kinds import NODE, POD, VM, VMI, Kind, kind_of
from infra.cluster.port import Object, ObjectList, Ref, Scope
from infra.cluster.virtual.api import ApiServer, VirtualClient
from infra.cluster.virtual.control_plane import ControlPlane
from infra.cluster.virtual.draws import Draws
from infra.cluster.virtual.faults import STRUCK, Fault, Moment
from infra.cluster.virtual.hub import WatchStream
from infra.errors import Gone, NotFound, Throttled, Unavailable

REFUSED_S = 0.05
"""A refused connection or request comes back that fast; assumption."""
RETRY_AFTER_S = 1.0
"""What an API server under priority and fairness asks for."""
FOREIGN = "stranger"


class Weather:
    """What the plan's timed faults do now; `measures` is told when a batch is released."""

    def __init__(self, server: ApiServer, plane: ControlPlane, draws: Draws) -> None:
        self.streams: dict[WatchStream, None] = {}
        self._server = server
        self._plane = plane
        self._draws = draws
        self._loop = server.loop
        self._now: dict[int, Fault] = {}
        self._turn = 0
        self._requests = count()
        self._load: list[asyncio.Task[None]] = []
        self._back: asyncio.Future[None] | None = None

    def measures(self, moment: Moment) -> None:
        """A batch is released: its faults take their course from here."""
        self._turn += 1
        self._plane.faults.moment = moment
        for number, fault in enumerate(self._plane.faults.plan.fault):
            if fault.kind not in STRUCK and fault.applies(moment):
                self._at(fault.at_s, self._begin, number, fault, self._turn)

    def measured(self) -> None:
        """The batch is over: what befell its observer ends.

        Lost nodes, foreign pods and an API that is away stay for their time.
        """
        self._turn += 1
        for number in [n for n, fault in self._now.items() if fault.kind != "api-away"]:
            self._end(number)
        self.streams.clear()

    def _at(self, seconds: float, call: Callable[..., None], *args: object) -> None:
        if not seconds:
            call(*args)
            return
        self._loop.call_at_ns(self._loop.now_ns + round(seconds * 1e9), call, *args)

    def _begin(self, number: int, fault: Fault, turn: int) -> None:
        if turn != self._turn:
            return
        match fault.kind:
            case "node-lost":
                self._lose_nodes(number, fault)
            case "foreign-load":
                self._load_nodes(fault)
            case "watch-ends":
                self._end_watches(fault, turn, self._loop.now_ns + round(fault.for_s * 1e9))
            case _:
                self._now[number] = fault
                self._at(fault.for_s, self._end, number)
                self._change(fault)

    def _change(self, fault: Fault) -> None:
        if fault.kind == "slow-snapshots":
            self._plane.faults.slowness = fault.factor
        elif fault.kind == "watch-gone":
            self._drop(Gone("too old resource version: the history was compacted"))
        elif fault.kind == "api-away":
            self._back = self._loop.create_future()
            self._drop(Unavailable("connection refused: the API server is away"))

    def _end(self, number: int) -> None:
        fault = self._now.pop(number, None)
        if fault is None:
            return
        if fault.kind == "slow-snapshots":
            self._plane.faults.slowness = 1.0
        if fault.kind == "api-away" and self._back is not None:
            self._back.set_result(None)
            self._back = None

    def _drop(self, error: Exception | None) -> None:
        streams, self.streams = self.streams, {}
        for stream in streams:
            stream.end(error)

    def _end_watches(self, fault: Fault, turn: int, until_ns: int) -> None:
        if turn == self._turn and self._loop.now_ns < until_ns:
            self._drop(None)
            self._at(fault.every_s, self._end_watches, fault, turn, until_ns)

    async def request(self, verb: str, kind: Kind) -> None:
        """What a request of ours meets before it reaches the server.

        Raises:
            Throttled: 429.
            Unavailable: a webhook or the API itself does not answer.
        """
        for number, fault in list(self._now.items()):
            if fault.kind == "api-away":
                await self._loop.wake_at(self._loop.now_ns + round(REFUSED_S * 1e9))
                raise Unavailable("connection refused: the API server is away")
            if fault.kind == "throttle" and self._hits(number, fault):
                raise Throttled("too many requests, please try again later", RETRY_AFTER_S)
            if fault.kind == "webhook-errors" and kind is VM and verb != "get" and self._hits(number, fault):
                raise Unavailable('failed calling webhook "virtualmachine-validator.kubevirt.io": timeout')
            if fault.kind == "api-slow":
                await self._loop.wake_at(self._loop.now_ns + round(fault.answer_s * 1e9))

    def _hits(self, number: int, fault: Fault) -> bool:
        return self._draws.uniform(f"fault {number}", f"request {next(self._requests)}") < fault.share

    async def list_again(self) -> None:
        """While history is gone the lists that should replace it are slow."""
        while any(fault.kind == "watch-gone" for fault in self._now.values()):
            await self._loop.wake_at(self._loop.now_ns + round(REFUSED_S * 1e9))

    def check(self) -> None:
        """Refuse while the API is away.

        Raises:
            Unavailable: it is.
        """
        if self._back is not None:
            raise Unavailable("connection refused: the API server is away")

    async def back(self) -> None:
        """Wait until the API is there; controllers try until it is."""
        while self._back is not None:
            await asyncio.shield(self._back)

    def _lose_nodes(self, number: int, fault: Fault) -> None:
        machines = self._plane.machines
        names = sorted(name for _, name in self._server.store.objects(NODE))
        ranked = sorted(names, key=lambda name: self._draws.uniform(f"fault {number}", name))
        for node in ranked[: fault.nodes]:
            self._plane.faults.lost[node] = self._loop.create_future()
            ready(self._server, node, "False")
            for vm in machines.on_node(node):
                machines.power_off(vm)
            self._at(fault.for_s, self._return, node)

    def _return(self, node: str) -> None:
        """The node is back: its virt-handler finds the domains of before gone."""
        ready(self._server, node, "True")
        store = self._server.store
        for (namespace, name), vmi in list(store.objects(VMI).items()):
            status = vmi.get("status", {})
            was_running = status.get("nodeName") == node and status.get("phase") == "Running"
            if was_running and self._plane.machines.machine(name) is None:
                store.patch(Ref(VMI, namespace, name), {"status": {"phase": "Failed"}})
        self._plane.faults.lost.pop(node).set_result(None)

    def _load_nodes(self, fault: Fault) -> None:
        """Somebody else's pods: room on the nodes, and a core each of their CPU."""
        store, stamp = self._server.store, self._server.stamp()
        nodes = sorted(name for _, name in store.objects(NODE))
        for number in range(fault.pods):
            # by time: pods of a process that ended are still there
            node, name = nodes[number % len(nodes)], f"{FOREIGN}-{self._loop.now_ns}-{number:05d}"
            store.create(foreign_pod(name, node), stamp)
            task = self._loop.create_task(self._plane.machines.burn(node, fault.for_s), name=name)
            self._load.append(task)
            self._at(fault.for_s, self._remove, name)

    def _remove(self, name: str) -> None:
        with suppress(NotFound):
            self._server.store.delete(Ref(POD, "default", name), self._server.stamp(), grace_s=0)


def ready(server: ApiServer, node: str, status: str) -> None:
    """Say of a node whether it is Ready."""
    ref = Ref(NODE, "", node)
    known = server.store.get(ref).get("status", {}).get("conditions", [])
    conditions = [{"type": "Ready", "status": status}, *(c for c in known if c["type"] != "Ready")]
    server.store.patch(ref, {"status": {"conditions": conditions}}, "status")


def foreign_pod(name: str, node: str) -> Object:
    """A running pod that is nobody's of ours."""
    requests = {"cpu": "100m", "memory": "256Mi"}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"nodeName": node, "containers": [{"name": "work", "resources": {"requests": requests}}]},
        "status": {"phase": "Running", "conditions": [{"type": "Ready", "status": "True"}]},
    }


class ExposedClient:
    """The run's own client: a `Cluster` whose requests and watches meet the weather."""

    def __init__(self, inner: VirtualClient, weather: Weather) -> None:
        self._inner = inner
        self._weather = weather

    async def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        """Create."""
        await self._weather.request("create", kind_of(obj["apiVersion"], obj["kind"]))
        return await self._inner.create(obj, dry_run=dry_run)

    async def apply(self, obj: Object, manager: str, *, force: bool = False, dry_run: bool = False) -> Object:
        """Server-side apply."""
        await self._weather.request("apply", kind_of(obj["apiVersion"], obj["kind"]))
        return await self._inner.apply(obj, manager, force=force, dry_run=dry_run)

    async def patch(self, ref: Ref, merge: Object, *, subresource: str = "") -> Object:
        """Merge patch."""
        await self._weather.request("patch", ref.kind)
        return await self._inner.patch(ref, merge, subresource=subresource)

    async def get(self, ref: Ref) -> Object:
        """Read one object."""
        await self._weather.request("get", ref.kind)
        return await self._inner.get(ref)

    async def list(self, scope: Scope, *, limit: int = 0, continue_: str = "") -> ObjectList:
        """Read a page."""
        await self._weather.request("get", scope.kind)
        await self._weather.list_again()
        return await self._inner.list(scope, limit=limit, continue_=continue_)

    async def delete(
        self, ref: Ref, *, uid: str = "", propagation: str = "Background", grace_s: int | None = None
    ) -> None:
        """Delete."""
        await self._weather.request("delete", ref.kind)
        await self._inner.delete(ref, uid=uid, propagation=propagation, grace_s=grace_s)

    async def subresource(self, ref: Ref, verb: str, body: Object | None = None) -> None:
        """Start, stop."""
        await self._weather.request(verb, ref.kind)
        await self._inner.subresource(ref, verb, body)

    def watch(self, scope: Scope, resource_version: str) -> WatchStream:
        """Open a watch that the weather can end."""
        self._weather.check()
        stream = self._inner.watch(scope, resource_version)
        assert isinstance(stream, WatchStream)
        self._weather.streams[stream] = None
        return stream

    async def close(self) -> None:
        """Nothing is held."""


class PatientClient:
    """A controller's client: while the API is away its calls wait."""

    def __init__(self, inner: VirtualClient, weather: Callable[[], "Weather | None"]) -> None:
        self._inner = inner
        self._weather = weather

    def __getattr__(self, name: str) -> object:
        inner = getattr(self._inner, name)
        if name not in {"create", "apply", "patch", "get", "list", "delete", "subresource"}:
            return inner

        async def patiently(*args: object, **options: object) -> object:
            weather = self._weather()
            if weather is not None:
                await weather.back()
            return await inner(*args, **options)

        return patiently
