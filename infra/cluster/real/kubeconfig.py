"""A context of a kubeconfig, as the official client reads it.

Contexts, certificates, tokens and login plugins are the official client's business; only what it found is
used, on sessions of our own: its generated calls cost four times the CPU of a plain request.
"""

import asyncio
import logging
import ssl
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import urlsplit

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_kube_config
from kubernetes.aio.config.kube_config import KubeConfigMerger

from infra.cluster.real.login import Login
from infra.errors import Unreachable

LOGIN_S = 30.0
"""A login plugin that wants somebody to look at a browser would be waited for, for ever."""


async def log_in(context: str, kubeconfig: str) -> Login:
    """Read `context` from `kubeconfig` (one path or several, as in KUBECONFIG), running its login plugin.

    Raises:
        Unreachable: no such file or context, or it cannot be used; the message names what there is.
    """
    name, user = _user(context, kubeconfig)
    configuration = Configuration()
    try:
        with _complaints() as said:
            async with asyncio.timeout(LOGIN_S):
                await load_kube_config(  # type: ignore[no-untyped-call]
                    kubeconfig, context, configuration, persist_config=False
                )
        _refuse_failed_plugin(user, configuration, said)
        return Login(
            context=context,
            server=configuration.host.rstrip("/"),
            tls=_tls(configuration),
            server_name=configuration.tls_server_name,
            proxy=_proxy(configuration),
            authorization=configuration.api_key.get("BearerToken", ""),
            proof=_proof(name, user),
        )
    except TimeoutError as error:
        raise Unreachable(
            f"context {context} of {kubeconfig}: {_plugin(user)} gave no answer within {LOGIN_S:g} s: "
            "run it by hand, or log in first"
        ) from error
    except (ConfigException, OSError, ValueError) as error:
        raise Unreachable(f"context {context} of {kubeconfig} cannot be used: {_problem(error)}") from error


PROOFS = {
    "auth-provider": "the login",
    "exec": "the login",
    "token": "the token",
    "tokenFile": "the token",
    "password": "the password",
    "client-certificate": "the client certificate",
    "client-certificate-data": "the client certificate",
}
"""What says who a user is, by the field that holds it, in the official client's order."""
NO_FILE = "File does not exists: "
"""How the official client says it."""
HINT = "correct the file, or log in again"


def _proof(name: str, user: Mapping[str, Any]) -> str:
    for field, words in PROOFS.items():
        if user.get(field):
            return f"{words} of user {name!r}"
    return f"user {name!r}, who has no token, password or certificate"


def _user(context: str, kubeconfig: str) -> tuple[str, Mapping[str, Any]]:
    """Name and section of the user of `context`.

    Raises:
        Unreachable: there is no such context, or not what it names; the message says what there is.
    """
    found = _named(kubeconfig, "context", context, kubeconfig)
    where = f"context {context} of {kubeconfig}"
    cluster = _named(kubeconfig, "cluster", str(found.get("cluster") or ""), where)
    if not cluster.get("server"):
        raise Unreachable(f"{where} cannot be used: its cluster has no server; {HINT}")
    name = str(found.get("user") or "")
    if not name and str(cluster["server"]).startswith("http:"):
        # A proxy on this machine logs in by itself.
        return name, {}
    return name, _named(kubeconfig, "user", name, where)


def _named(kubeconfig: str, what: str, name: str, where: str) -> Mapping[str, Any]:
    """What the entry `name` of the section of contexts, clusters or users holds."""
    entries = _entries(kubeconfig, f"{what}s")
    held = entries.get(name, {}).get(what)
    if isinstance(held, Mapping):
        return held
    there = ", ".join(sorted(entries)) or "none"
    if what == "context" and name not in entries:
        raise Unreachable(f"no context {name!r} in {where}; it has: {there}")
    problem = f"its {what} {name!r} is not there; there is: {there}" if name else f"it names no {what}"
    if name in entries:
        problem = f"its {what} {name!r} is empty"
    raise Unreachable(f"{where} cannot be used: {problem}; {HINT}")


def _entries(kubeconfig: str, section: str) -> dict[str, Mapping[str, Any]]:
    """The entries of a section by name, as the official client merges them over all files."""
    try:
        merged = KubeConfigMerger(kubeconfig).config  # type: ignore[no-untyped-call]
    except (OSError, yaml.YAMLError, TypeError, AttributeError) as error:
        raise Unreachable(f"{kubeconfig} is no usable kubeconfig: {_one_line(error)}") from error
    if merged is None:
        raise Unreachable(f"no kubeconfig at {kubeconfig}: set KUBECONFIG")
    try:
        return {str(entry.value["name"]): entry.value for entry in merged.value.get(section) or []}
    except (TypeError, KeyError, AttributeError) as error:
        raise Unreachable(
            f"{kubeconfig} is no usable kubeconfig: not every one of its {section} has a name"
        ) from error


def _plugin(user: Mapping[str, Any]) -> str:
    return f"its login plugin {(user.get('exec') or {}).get('command')!r}"


def _refuse_failed_plugin(user: Mapping[str, Any], configuration: Configuration, said: list[str]) -> None:
    """The official client only logs that a login plugin failed, and would go on as nobody."""
    if "exec" in user and not (configuration.api_key or configuration.cert_file):
        why = f": {' '.join(said[-1].split())}" if said else ""
        raise ConfigException(f"{_plugin(user)} gave no credentials{why}")


@contextmanager
def _complaints() -> Iterator[list[str]]:
    """What the official client logs meanwhile, kept for our own line instead of printed as one of its own."""
    said: list[str] = []
    logger, handler = logging.getLogger("kubernetes.aio.config"), logging.Handler()
    handler.emit = lambda record: said.append(record.getMessage())  # type: ignore[method-assign]
    propagates, logger.propagate = logger.propagate, False
    logger.addHandler(handler)
    try:
        yield said
    finally:
        logger.removeHandler(handler)
        logger.propagate = propagates


def _tls(configuration: Configuration) -> ssl.SSLContext:
    context = ssl.create_default_context(cafile=configuration.ssl_ca_cert)
    if configuration.cert_file:
        context.load_cert_chain(configuration.cert_file, configuration.key_file)
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _proxy(configuration: Configuration) -> str | None:
    """The address of the proxy; without a scheme it is http, as curl and kubectl read it."""
    found = configuration.proxy or _proxy_of_environment(configuration.host)
    return f"http://{found}" if found and "://" not in found else found


def _proxy_of_environment(server: str) -> str | None:
    parts = urlsplit(server)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _problem(error: Exception) -> str:
    """What is wrong; a file that the kubeconfig names and that cannot be read is named, with what to do."""
    if isinstance(error, OSError) and error.filename and error.strerror:
        return f"its file {str(error.filename)!r} cannot be read ({error.strerror}); {HINT}"
    said = _one_line(error)
    if isinstance(error, ssl.SSLError):
        return f"its certificate or key: {said}; {HINT}"
    missing = said.removeprefix(NO_FILE)
    return said if missing == said else f"its file {missing!r} is not there; {HINT}"


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
