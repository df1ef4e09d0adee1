"""The verbs on objects: get, list, create, update, patch, apply, delete, through the `Cluster` port."""

import asyncio
from contextlib import suppress
from typing import Any

from infra.cluster.kinds import POD
from infra.cluster.port import Cluster, Object, ObjectList, Ref, Scope
from infra.cluster.virtual.store import merge
from infra.errors import Conflict, Invalid, NotFound
from infra.served import checks, discovery, patches
from infra.served.access import GROUPS, USER
from infra.served.calls import Answer, Call
from infra.served.cluster import ServedCluster, random_suffix
from infra.served.deletion import delete_foreground, release_dependents
from infra.served.pages import Pages
from infra.served.status import Refused, bad_request, no_such_resource, not_allowed, success
from infra.served.tables import table

TRIES = 5
NOWHERE = "-"
"""No namespace has this name: a list of it costs what a request costs, and finds nothing."""
_KEPT = ("uid", "creationTimestamp", "resourceVersion", "generation", "deletionTimestamp", "managedFields")


class Objects:
    """Answers calls on objects of one served cluster."""

    def __init__(self, cluster: ServedCluster) -> None:
        self._client: Cluster = cluster.client
        self._server = cluster.server
        self._store = cluster.server.store
        self._pages = Pages()

    async def answer(self, call: Call) -> Answer:
        """Carry a call out.

        Raises:
            ClusterError: what the store, or the path, does not allow.
        """
        target = call.target
        if target.subresource not in ("", "status") and (target.kind, target.subresource) != (POD, "binding"):
            raise no_such_resource()
        match call.method, bool(target.name):
            case "GET", True:
                return self._shown(call, await self._client.get(target.ref))
            case "GET", False:
                return await self._list(call)
            case "POST", _:
                return await self._post(call)
            case "PUT", True:
                return Answer(200, await self._update(call))
            case "PATCH", True:
                return await self._patch(call)
            case "DELETE", True:
                return await self._delete(call)
            case "DELETE", False:
                return await self._delete_collection(call)
        raise not_allowed()

    def _shown(self, call: Call, obj: Object) -> Answer:
        if not call.table:
            return Answer(200, obj)
        version = obj["metadata"]["resourceVersion"]
        return Answer(200, table(call.target.kind, [obj], version, call.table))

    async def _list(self, call: Call) -> Answer:
        limit, token = call.number("limit"), call.query.get("continue", "")
        if token:
            await self._client.list(Scope(call.target.kind, NOWHERE))
            page = self._pages.next(token, limit)
        else:
            page = self._pages.first(await self._client.list(call.scope), limit)
        meta: Object = {"resourceVersion": page.resource_version}
        if page.continue_:
            meta |= {"continue": page.continue_, "remainingItemCount": self._pages.remaining(page)}
        return Answer(200, self._listed(call, page, meta))

    def _listed(self, call: Call, page: ObjectList, meta: Object) -> Object:
        kind = call.target.kind
        if call.table:
            return {**table(kind, page.items, page.resource_version, call.table), "metadata": meta}
        named = {"kind": f"{kind}List", "apiVersion": kind.api_version}
        return {**named, "metadata": meta, "items": page.items}

    async def _post(self, call: Call) -> Answer:
        kind = call.target.kind
        if call.target.subresource == "binding":
            return await self._bind(call)
        if call.target.name:
            raise not_allowed()
        body = call.decoded()
        if kind.kind == "SelfSubjectReview":
            user = {"username": USER, "groups": list(GROUPS)}
            return Answer(201, {**call.options(), "status": {"userInfo": user}})
        obj = self._new(call, _named(body))
        return Answer(201, await self._client.create(obj, dry_run=call.dry_run))

    def _new(self, call: Call, body: Any) -> Object:
        obj = checks.checked(call.target, body)
        return checks.completed(obj, call.target.kind, self._server.description.storage_class)

    async def _bind(self, call: Call) -> Answer:
        body = call.options()
        if not isinstance(body.get("target"), dict) or not body["target"].get("name"):
            raise bad_request("a Binding needs target.name")
        await self._client.subresource(call.target.ref, "binding", body)
        return Answer(201, success(call.details()))

    async def _update(self, call: Call) -> Object:
        """PUT: what the new object says, as a merge patch of the one there is."""
        new = checks.checked(call.target, call.decoded())
        old = self._store.get(call.target.ref)
        change = patches.difference(_writable(old, call), _writable(new, call))
        if version := new["metadata"].get("resourceVersion"):
            change["metadata"] = {**change.get("metadata", {}), "resourceVersion": version}
        return await self._changed(call, change)

    async def _patch(self, call: Call) -> Answer:
        what = call.content_type.partition(";")[0].strip()
        if what == discovery.APPLY:
            return await self._apply(call)
        body = call.decoded()
        if what == discovery.MERGE and isinstance(body, dict):
            return self._shown(call, await self._changed(call, body))
        if what == discovery.JSON and isinstance(body, list):
            return self._shown(call, await self._computed(call, body))
        if (
            what == discovery.STRATEGIC
            and isinstance(body, dict)
            and not discovery.is_custom(call.target.kind)
        ):
            return self._shown(call, await self._computed(call, body))
        raise _unsupported(call)

    async def _computed(self, call: Call, body: Any) -> Object:
        """A patch that needs the object there is: computed again when somebody was quicker."""
        for _ in range(TRIES):
            old = self._store.get(call.target.ref)
            new = patches.json_patch(old, body) if isinstance(body, list) else patches.strategic(old, body)
            if not isinstance(new, dict):
                raise Invalid("the patch leaves no object")
            change = patches.difference(old, new)
            own = change.get("metadata", {}).get("resourceVersion")
            version = own or old["metadata"]["resourceVersion"]
            guarded = {**change, "metadata": {**change.get("metadata", {}), "resourceVersion": version}}
            try:
                return await self._changed(call, guarded)
            except Conflict:
                if own:
                    raise
        raise Conflict(f"{call.target.ref} changed {TRIES} times while it was patched; try again")

    async def _changed(self, call: Call, change: Object) -> Object:
        ref, subresource = call.target.ref, call.target.subresource
        if not isinstance(change.get("metadata", {}), dict):
            raise bad_request("metadata: a map is needed")
        merged = merge(self._store.get(ref), change)
        if not subresource:
            checks.checked(call.target, merged)
        if call.dry_run:
            return self._store.patch(ref, change, subresource, dry_run=True)
        return await self._client.patch(ref, change, subresource=subresource)

    async def _apply(self, call: Call) -> Answer:
        target, manager = call.target, call.query.get("fieldManager", "")
        if not manager:
            raise bad_request(
                "PatchOptions.meta.k8s.io is invalid: fieldManager: is required for apply patch"
            )
        if target.subresource:
            raise not_allowed()
        obj = checks.fitting(target, call.decoded())
        if target.kind.status_subresource:
            obj = {key: value for key, value in obj.items() if key != "status"}
        exists = (target.namespace, target.name) in self._store.objects(target.kind)
        if exists:
            checks.checked(target, merge(self._store.get(target.ref), obj))
        else:
            obj = self._new(call, obj)
        force = call.query.get("force") == "true"
        answer = await self._client.apply(obj, manager, force=force, dry_run=call.dry_run)
        return self._shown(call, answer)._replace(code=200 if exists else 201)

    async def _delete(self, call: Call) -> Answer:
        options = call.options()
        ref = call.target.ref
        old = self._store.get(ref)
        if not call.dry_run and not _is_dry(options):
            await self._delete_one(ref, call, options)
        left = self._store.objects(ref.kind).get((ref.namespace, ref.name))
        if left is not None and left["metadata"]["uid"] == old["metadata"]["uid"]:
            return Answer(200, left)
        return Answer(200, success({**call.details(), "uid": old["metadata"]["uid"]}))

    async def _delete_one(self, ref: Ref, call: Call, options: Object) -> None:
        propagation = options.get("propagationPolicy") or call.query.get("propagationPolicy") or "Background"
        uid = (options.get("preconditions") or {}).get("uid") or ""
        grace = options.get("gracePeriodSeconds", call.query.get("gracePeriodSeconds"))
        if propagation == "Orphan":
            release_dependents(self._store, ref)
        if propagation == "Foreground":
            await delete_foreground(self._server, self._client, ref, uid)
            return
        await self._client.delete(ref, uid=uid, propagation=propagation, grace_s=_seconds(grace))

    async def _delete_collection(self, call: Call) -> Answer:
        found, options = await self._client.list(call.scope), call.options()
        if not call.dry_run and not _is_dry(options):
            refs = [_ref(call, obj) for obj in found.items]
            await asyncio.gather(*(self._delete_quietly(ref, call, options) for ref in refs))
        return Answer(200, self._listed(call, found, {"resourceVersion": found.resource_version}))

    async def _delete_quietly(self, ref: Ref, call: Call, options: Object) -> None:
        with suppress(NotFound):
            await self._delete_one(ref, call, options)


def _ref(call: Call, obj: Object) -> Ref:
    meta = obj["metadata"]
    return Ref(call.target.kind, meta.get("namespace", ""), meta["name"])


def _is_dry(options: Object) -> bool:
    return options.get("dryRun") == ["All"]


def _named(body: Any) -> Any:
    """A name for an object that has only the beginning of one."""
    meta = body.get("metadata") if isinstance(body, dict) else None
    if not isinstance(meta, dict) or meta.get("name") or not meta.get("generateName"):
        return body
    return {**body, "metadata": {**meta, "name": f"{meta['generateName']}{random_suffix()}"}}


def _writable(obj: Object, call: Call) -> Object:
    """What a PUT may change: everything but what the server keeps, and the other half of the object."""
    if call.target.subresource == "status":
        return {"status": obj.get("status", {})}
    meta = {key: value for key, value in obj["metadata"].items() if key not in _KEPT}
    found = {**obj, "metadata": meta}
    if call.target.kind.status_subresource:
        found.pop("status", None)
    return found


def _seconds(grace: Any) -> int | None:
    if grace is None:
        return None
    if not str(grace).lstrip("-").isdigit():
        raise bad_request(f"gracePeriodSeconds={grace}: a whole number is needed")
    return int(grace)


def _unsupported(call: Call) -> Refused:
    types = [discovery.JSON, discovery.MERGE, discovery.APPLY]
    if not discovery.is_custom(call.target.kind):
        types.insert(2, discovery.STRATEGIC)
    return Refused(
        415,
        "UnsupportedMediaType",
        "the body of the request was in an unknown format - accepted media types include: "
        f"{', '.join(types)}",
    )
