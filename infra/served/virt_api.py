"""virt-api's own answers: start and stop of a VirtualMachine, as the real one gives them."""

from typing import NamedTuple

from infra.cluster.kinds import VM
from infra.cluster.port import Cluster
from infra.served.calls import Call
from infra.served.status import no_such_resource, not_allowed

VERBS = ("start", "stop")
NOT_ACCEPTABLE = "406: Not Acceptable\n\nAvailable representations: "


class Plain(NamedTuple):
    """An answer without a Status."""

    code: int
    text: str = ""


async def act(client: Cluster, call: Call) -> Plain:
    """202 without a body; 406 to a caller that accepts JSON alone, since its routes declare no type."""
    target = call.target
    if target.kind is not VM or target.subresource not in VERBS:
        raise no_such_resource()
    if call.method != "PUT":
        raise not_allowed()
    ranges = [part.split(";")[0].strip() for part in call.accept.split(",")]
    if call.accept and "*/*" not in ranges:
        return Plain(406, NOT_ACCEPTABLE)
    await client.subresource(target.ref, target.subresource, call.options())
    return Plain(202)
