"""What each call looks like on the wire: paths, queries, content types. Pure."""

from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.parse import urlencode

import orjson

from infra.cluster.kinds import VM, Kind, kind_of
from infra.cluster.port import Object, Ref, Scope

JSON = "application/json"
MERGE_PATCH = "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
SUBRESOURCES_PREFIX = "/apis/subresources.kubevirt.io/v1"
WATCH_S = 290
"""How long one watch lasts before the server ends it cleanly, seconds."""


class Request(NamedTuple):
    """One request; `title` is how messages name it."""

    method: str
    path: str
    title: str
    body: bytes = b""
    content_type: str = JSON


def create(obj: Object, *, dry_run: bool) -> Request:
    """POST to the object's collection; unknown fields are refused, as the server would drop them silently."""
    kind = kind_of(obj["apiVersion"], obj["kind"])
    metadata = obj.get("metadata", {})
    name = metadata.get("name") or metadata.get("generateName", "")
    query = _query({"fieldValidation": "Strict", "dryRun": "All" if dry_run else ""})
    path = collection(kind, metadata.get("namespace", "")) + query
    return Request("POST", path, f"create {kind} {name}", orjson.dumps(obj))


def apply(obj: Object, manager: str, *, force: bool, dry_run: bool) -> Request:
    """Server-side apply of the fields in `obj`."""
    metadata = obj["metadata"]
    ref = Ref(kind_of(obj["apiVersion"], obj["kind"]), metadata.get("namespace", ""), metadata["name"])
    query = {
        "fieldManager": manager,
        "fieldValidation": "Strict",
        "force": "true" if force else "",
        "dryRun": "All" if dry_run else "",
    }
    return Request("PATCH", item(ref) + _query(query), f"apply {ref}", orjson.dumps(obj), APPLY_PATCH)


def patch(ref: Ref, merge: Object, subresource: str) -> Request:
    """JSON merge patch of an object or of one of its subresources."""
    path = item(ref) + (f"/{subresource}" if subresource else "") + "?fieldValidation=Strict"
    return Request("PATCH", path, f"patch {ref}", orjson.dumps(merge), MERGE_PATCH)


def get(ref: Ref) -> Request:
    """GET of one object."""
    return Request("GET", item(ref), f"get {ref}")


def page(scope: Scope, limit: int, continue_: str) -> Request:
    """GET of one page of a collection."""
    query = {**_selectors(scope), "limit": str(limit) if limit else "", "continue": continue_}
    return Request(
        "GET", collection(scope.kind, scope.namespace) + _query(query), f"list {scope.kind.plural}"
    )


def watch(scope: Scope, resource_version: str) -> Request:
    """GET of a collection's changes, with bookmarks."""
    query = {
        "watch": "true",
        "allowWatchBookmarks": "true",
        "timeoutSeconds": str(WATCH_S),
        "resourceVersion": resource_version,
        **_selectors(scope),
    }
    return Request(
        "GET", collection(scope.kind, scope.namespace) + _query(query), f"watch {scope.kind.plural}"
    )


def delete(ref: Ref, uid: str, propagation: str, grace_s: int | None) -> Request:
    """DELETE; with a `uid`, of that very object only."""
    options: dict[str, Any] = {"propagationPolicy": propagation}
    if uid:
        options["preconditions"] = {"uid": uid}
    if grace_s is not None:
        options["gracePeriodSeconds"] = grace_s
    return Request("DELETE", item(ref), f"delete {ref}", orjson.dumps(options))


def subresource(ref: Ref, verb: str, body: Mapping[str, Any] | None) -> Request:
    """PUT start or stop of a VirtualMachine through virt-api's own API; POST `binding` of a Pod."""
    if ref.kind is VM:
        path = f"{SUBRESOURCES_PREFIX}/namespaces/{ref.namespace}/{VM.plural}/{ref.name}/{verb}"
        return Request("PUT", path, f"{verb} {ref}", orjson.dumps(body or {}))
    wanted = dict(body or {})
    if verb == "binding":
        wanted = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": ref.name}, **wanted}
    return Request("POST", f"{item(ref)}/{verb}", f"{verb} {ref}", orjson.dumps(wanted))


def collection(kind: Kind, namespace: str) -> str:
    """The path of a kind's objects, in one namespace or (without one) in all."""
    within = f"/namespaces/{namespace}" if namespace and kind.namespaced else ""
    return f"{kind.prefix}{within}/{kind.plural}"


def item(ref: Ref) -> str:
    """The path of one object."""
    return f"{collection(ref.kind, ref.namespace)}/{ref.name}"


def _selectors(scope: Scope) -> dict[str, str]:
    return {"labelSelector": scope.labels, "fieldSelector": scope.fields}


def _query(parameters: Mapping[str, str]) -> str:
    given = {key: value for key, value in parameters.items() if value}
    return f"?{urlencode(given)}" if given else ""
