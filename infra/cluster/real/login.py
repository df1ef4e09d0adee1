"""Who we are and where the API server is, as the official client reads it from a kubeconfig.

Contexts, certificates, tokens and login plugins are the official client's business; only what it found is
used, on sessions of our own: its generated calls cost four times the CPU of a plain request.
"""

import ssl
import urllib.request
from dataclasses import dataclass
from urllib.parse import urlsplit

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, list_kube_config_contexts, load_kube_config

from infra.errors import Unreachable


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
    _refuse_unknown(context, kubeconfig)
    configuration = Configuration()
    try:
        await load_kube_config(  # type: ignore[no-untyped-call]
            kubeconfig, context, configuration, persist_config=False
        )
        return Login(
            context=context,
            server=configuration.host.rstrip("/"),
            tls=_tls(configuration),
            server_name=configuration.tls_server_name,
            proxy=configuration.proxy or _proxy_of_environment(configuration.host),
            authorization=configuration.api_key.get("BearerToken", ""),
        )
    except (ConfigException, OSError, ValueError) as error:
        raise Unreachable(f"context {context} of {kubeconfig} cannot be used: {_one_line(error)}") from error


def _refuse_unknown(context: str, kubeconfig: str) -> None:
    try:
        contexts, _ = list_kube_config_contexts(kubeconfig)  # type: ignore[no-untyped-call]
    except (ConfigException, OSError, yaml.YAMLError) as error:
        raise Unreachable(f"{kubeconfig} is no usable kubeconfig: {_one_line(error)}") from error
    names = sorted(str(entry["name"]) for entry in contexts)
    if context not in names:
        there = ", ".join(names) or "none"
        raise Unreachable(f"no context {context!r} in {kubeconfig}; it has: {there}")


def _tls(configuration: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _proxy_of_environment(server: str) -> str | None:
    parts = urlsplit(server)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
