"""Who we are and where the API server is; `kubeconfig.log_in` finds it out."""

import ssl
from dataclasses import dataclass


@dataclass(frozen=True)
class Login:
    """One context, ready for use.

    `server_name` is what the server's certificate must say when that is not its address; `authorization` is
    the header's value, empty when a client certificate says who we are; `proof` names
    what says so, without the secret.
    """

    context: str
    server: str
    tls: ssl.SSLContext
    server_name: str | None
    proxy: str | None
    authorization: str
    proof: str = "the login"
