"""Server-side apply of plain manifests to the testbed, and waiting until the API serves what was applied.

Small and synchronous, over the standard library: it runs before anything that a benchmark would use exists.
"""

import http.client
import json
import ssl
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from functools import partial
from typing import Any

from infra.errors import ClusterError
from infra.testbed.state import State

Manifest = Mapping[str, Any]

FIELD_MANAGER = "virtscale-testbed"
PARALLEL = 4
READY_S = 180.0
POLL_S = 0.05
READY_CONDITIONS = {"CustomResourceDefinition": "Established", "APIService": "Available"}


def request(state: State, method: str, path: str, body: Manifest | None = None) -> tuple[int, Any]:
    """One call as the testbed's administrator: the HTTP status and the answer (JSON parsed, else text)."""
    context = ssl.create_default_context(cafile=str(state.pki / "ca.crt"))
    context.load_cert_chain(state.pki / "admin.crt", state.pki / "admin.key")
    connection = http.client.HTTPSConnection("127.0.0.1", state.api_port, timeout=30, context=context)
    content = "application/apply-patch+yaml" if method == "PATCH" else "application/json"
    with closing(connection):
        data = json.dumps(body) if body is not None else None
        connection.request(method, path, data, {"Content-Type": content, "Accept": "*/*"})
        answer = connection.getresponse()
        text = answer.read()
    try:
        return answer.status, json.loads(text)
    except ValueError:
        return answer.status, text.decode(errors="replace")


def apply(state: State, objects: Iterable[Manifest]) -> None:
    """Apply `objects` (as the owner of every field in them), then wait until the CRDs among them are served.

    Args:
        state: The running testbed.
        objects: Manifests in any order; what one needs to exist must have been applied in an earlier call.

    Raises:
        ClusterError: one was refused, or a CRD or an APIService did not become ready.
    """
    wanted = list(objects)
    with ThreadPoolExecutor(PARALLEL) as pool:
        list(pool.map(lambda manifest: _apply_one(state, manifest), wanted))
    for manifest in wanted:
        if condition := READY_CONDITIONS.get(manifest["kind"]):
            wait_for_condition(state, manifest, condition)
    _wait_until_served(state, [item for item in wanted if item["kind"] == "CustomResourceDefinition"])


def apply_status(state: State, manifest: Manifest) -> None:
    """Apply the status of an object whose kind has the status subresource."""
    _apply_one(state, manifest, "/status")


def delete(state: State, manifest: Manifest) -> None:
    """Delete the object that `manifest` names; fine when it is absent."""
    status, answer = request(state, "DELETE", object_path(manifest))
    if status not in (200, 202, 404):
        raise ClusterError(f"cannot delete {_title(manifest)}: {status} {_message(answer)}")


def object_path(manifest: Manifest) -> str:
    """The API path of the object that `manifest` describes."""
    group_version, metadata = manifest["apiVersion"], manifest["metadata"]
    base = f"/api/{group_version}" if "/" not in group_version else f"/apis/{group_version}"
    namespace = f"/namespaces/{metadata['namespace']}" if metadata.get("namespace") else ""
    kind = manifest["kind"].lower()
    plural = f"{kind}es" if kind.endswith("s") else f"{kind}s"
    return f"{base}{namespace}/{plural}/{metadata['name']}"


def wait_for_condition(state: State, manifest: Manifest, condition: str) -> None:
    """Return once the object's `condition` is True; ClusterError after three minutes."""
    path = object_path(manifest)

    def holds() -> bool:
        _, answer = request(state, "GET", path)
        found = (answer.get("status") or {}).get("conditions") or []
        return any(item["type"] == condition and item["status"] == "True" for item in found)

    wait_until(holds, f"{_title(manifest)} did not become {condition}")


def wait_until(holds: Callable[[], bool], problem: str) -> None:
    """Return once `holds` does; ClusterError with `problem` after three minutes."""
    deadline = time.monotonic() + READY_S
    while not holds():
        if time.monotonic() > deadline:
            raise ClusterError(f"{problem} within {READY_S:.0f} s; see the logs in the state folder")
        time.sleep(POLL_S)


def _apply_one(state: State, manifest: Manifest, subresource: str = "") -> None:
    path = f"{object_path(manifest)}{subresource}?fieldManager={FIELD_MANAGER}&force=true"
    status, answer = request(state, "PATCH", path, manifest)
    if status not in (200, 201):
        raise ClusterError(f"{_title(manifest)} was refused: {status} {_message(answer)}")


def _wait_until_served(state: State, crds: Sequence[Manifest]) -> None:
    """An Established CRD may still answer 404 for a moment: ask each kind once before anybody else does."""
    for crd in crds:
        spec = crd["spec"]
        version = next(item["name"] for item in spec["versions"] if item["storage"])
        path = f"/apis/{spec['group']}/{version}/{spec['names']['plural']}?limit=1"
        wait_until(partial(_answers, state, path), f"{_title(crd)} is not served")


def _answers(state: State, path: str) -> bool:
    return request(state, "GET", path)[0] == 200


def _title(manifest: Manifest) -> str:
    return f"{manifest['kind']} {manifest['metadata']['name']}"


def _message(answer: Any) -> str:
    return str(answer.get("message", "")) if isinstance(answer, dict) else str(answer)
