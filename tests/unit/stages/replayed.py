"""Recordings of KubeVirt's and CDI's own controllers as the `Cluster` of a stage."""

import asyncio
import json
from collections.abc import AsyncIterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from infra.clock import Clock
from infra.cluster.kinds import DATA_VOLUME, POD, PVC, VM, VMI, Kind
from infra.cluster.port import Object, ObjectList, Ref, Scope, WatchBatch, WatchEvent, ref_of
from infra.errors import Conflict, Forbidden, NotFound

DATA = Path(__file__).parents[2] / "data" / "kubevirt"
KINDS = {"VM": VM, "VMI": VMI, "DV": DATA_VOLUME, "PVC": PVC, "Pod": POD}
VM_NAME = "vm-0000"


class Line(NamedTuple):
    """A watch event, or (kind None) what the driver of the recording asked for."""

    t_s: float
    type: str
    kind: Kind | None
    name: str
    object: Object

    @property
    def said(self) -> str:
        """The word or phase that it shows."""
        status = self.object.get("status", {})
        return str(status.get("printableStatus", "") or status.get("phase", ""))

    def says(self, what: Mapping[str, str]) -> bool:
        """Whether it is of such a `type`, and `said` that."""
        return {"type": self.type, "said": self.said}.items() >= what.items()


def recorded(name: str, rename: Mapping[str, str] | None = None) -> list[Line]:
    """The lines of a recording, whole names replaced."""
    text = (DATA / f"{name}.jsonl").read_text()
    for old, new in (rename or {}).items():
        text = text.replace(f'"{old}"', f'"{new}"')
    return [_line(json.loads(line)) for line in text.splitlines()]


def _line(said: dict[str, Any]) -> Line:
    kind = KINDS.get(said.get("kind", ""))
    return Line(said["t"], said["type"], kind, said["name"], said.get("object", {}))


def _owner(obj: Object) -> str:
    owners = obj["metadata"].get("ownerReferences") or [{"name": ""}]
    return str(owners[0]["name"])


class RecordedCluster:
    """Answers as recorded: a request is followed by what followed it then, at the same pace.

    `through`: what the driver did next is played as well, as if somebody else did it. `refused`: a verb
    that is carried out and answered with a conflict, as one that was sent twice.
    """

    def __init__(self, lines: list[Line], clock: Clock, *, through: bool = False, refused: str = "") -> None:
        self._lines = lines
        self._clock = clock
        self._through = through
        self._refused = refused
        self._objects: dict[Ref, Object] = {}
        self._streams: list[tuple[Kind, asyncio.Queue[WatchBatch]]] = []
        self._version = 0
        self.playing: asyncio.Task[None] | None = None

    def skip_to(self, mark: str) -> float:
        """Bring everything into the state before a request; returns when that was."""
        for line in self._lines:
            if line.kind is None and line.name == mark:
                return line.t_s
            self._happen(line)
        raise AssertionError(f"nobody asked for {mark}")

    def _happen(self, line: Line) -> None:
        if line.kind is None:
            return
        self._version += 1
        ref = Ref(line.kind, "", line.name)
        meta = {**line.object["metadata"], "uid": f"{ref}", "resourceVersion": str(self._version)}
        kind = {"apiVersion": line.kind.api_version, "kind": line.kind.kind}
        obj = {**kind, **line.object, "metadata": meta}
        if line.type == "DELETED":
            self._objects.pop(ref, None)
        else:
            self._objects[ref] = obj
        batch = WatchBatch(self._clock.now_ns(), [WatchEvent(line.type, obj)])
        for watched, queue in self._streams:
            if watched is line.kind:
                queue.put_nowait(batch)

    def _begin(self, mark: str) -> None:
        if self.playing is None:
            self.playing = asyncio.get_running_loop().create_task(self._play(mark))

    async def _play(self, mark: str) -> None:
        marks = [i for i, line in enumerate(self._lines) if line.kind is None]
        begin = next(i for i in marks if self._lines[i].name == mark)
        end = len(self._lines) if self._through else min((i for i in marks if i > begin), default=None)
        at_s = self._lines[begin].t_s
        for line in self._lines[begin + 1 : end]:
            await self._clock.sleep(line.t_s - at_s)
            at_s = line.t_s
            self._happen(line)

    async def create(self, obj: Object, *, dry_run: bool = False) -> Object:
        name = obj["metadata"]["name"]
        if "-heartbeat" in name:
            raise Forbidden("heartbeats are not in the recordings")
        self._begin("create")
        return {**obj, "metadata": {**obj["metadata"], "uid": f"{Ref(ref_of(obj).kind, '', name)}"}}

    async def subresource(self, ref: Ref, verb: str, body: Object | None = None) -> None:
        self._begin(verb)
        if verb == self._refused:
            await self._clock.sleep(0.06)
            raise Conflict(f'virtualmachine.kubevirt.io "{ref.name}": VM is already running')

    async def delete(
        self, ref: Ref, *, uid: str = "", propagation: str = "Background", grace_s: int | None = None
    ) -> None:
        if any(line.kind is None and line.name == "delete" for line in self._lines):
            self._begin("delete")
            return
        # nobody deleted anything in this recording: what owns and what is owned goes at once
        if self.playing is not None:
            self.playing.cancel()
        owned = [each for each, obj in self._objects.items() if _owner(obj) == ref.name]
        for each in (Ref(ref.kind, "", ref.name), *owned):
            obj = self._objects[each]
            self._happen(Line(0.0, "DELETED", each.kind, each.name, obj))

    async def apply(self, obj: Object, manager: str, *, force: bool = False, dry_run: bool = False) -> Object:
        raise NotImplementedError("no stage that is replayed applies anything")

    async def patch(self, ref: Ref, merge: Object, *, subresource: str = "") -> Object:
        return await self.get(ref)

    async def get(self, ref: Ref) -> Object:
        found = self._objects.get(Ref(ref.kind, "", ref.name))
        if found is None:
            raise NotFound(f"{ref} not found")
        return found

    async def list(self, scope: Scope, *, limit: int = 0, continue_: str = "") -> ObjectList:
        items = [obj for ref, obj in self._objects.items() if ref.kind is scope.kind]
        return ObjectList(items, str(self._version), "")

    async def watch(self, scope: Scope, resource_version: str) -> AsyncIterator[WatchBatch]:
        queue: asyncio.Queue[WatchBatch] = asyncio.Queue()
        self._streams.append((scope.kind, queue))
        while True:
            yield await queue.get()

    async def close(self) -> None:
        if self.playing is not None:
            self.playing.cancel()
