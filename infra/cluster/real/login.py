"""Who we are and where the API server is."""

import ssl
from dataclasses import dataclass


@dataclass(frozen=True)
class Login:
    """One context, ready for use.

    `server_name` is what the server's certificate must say when that is not its address; `authorization` is
    the header's value, empty when a client certificate says who we are.
    """

    context: str
    server: str
    tls: ssl.SSLContext
    server_name: str | None
    proxy: str | None
    authorization: str


async def log_in(context: str, kubeconfig: str) -> Login:
    """Read `context` from `kubeconfig` (one path or several, as in KUBECONFIG), running its login plugin.

    Raises:
        Unreachable: no such file or context, or it cannot be used; the message names what there is.
    """
    # Deferred: the official client costs half a second to import, which a virtual cluster need not pay.
    from infra.cluster.real.kubeconfig import read_context

    return await read_context(context, kubeconfig)
