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
    user = _user(context, kubeconfig)
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
            proxy=configuration.proxy or _proxy_of_environment(configuration.host),
            authorization=configuration.api_key.get("BearerToken", ""),
        )
    except TimeoutError as error:
        raise Unreachable(
            f"context {context} of {kubeconfig}: {_plugin(user)} gave no answer within {LOGIN_S:g} s: "
            "run it by hand, or log in first"
        ) from error
    except (ConfigException, OSError, ValueError) as error:
        raise Unreachable(f"context {context} of {kubeconfig} cannot be used: {_one_line(error)}") from error


def _user(context: str, kubeconfig: str) -> Mapping[str, Any]:
    """The user section of `context`; Unreachable when there is no such context, naming those there are."""
    contexts = _entries(kubeconfig, "contexts")
    if context not in contexts:
        there = ", ".join(sorted(contexts)) or "none"
        raise Unreachable(f"no context {context!r} in {kubeconfig}; it has: {there}")
    name = (contexts[context].get("context") or {}).get("user", "")
    return _entries(kubeconfig, "users").get(name, {}).get("user") or {}


def _entries(kubeconfig: str, section: str) -> dict[str, Mapping[str, Any]]:
    """The entries of a section by name, as the official client merges them over all files."""
    try:
        merged = KubeConfigMerger(kubeconfig).config  # type: ignore[no-untyped-call]
    except (OSError, yaml.YAMLError, TypeError, AttributeError) as error:
        raise Unreachable(f"{kubeconfig} is no usable kubeconfig: {_one_line(error)}") from error
    if merged is None:
        raise Unreachable(f"no kubeconfig at {kubeconfig}: set KUBECONFIG")
    return {str(entry.value["name"]): entry.value for entry in merged.value.get(section) or []}


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


def _proxy_of_environment(server: str) -> str | None:
    parts = urlsplit(server)
    if urllib.request.proxy_bypass(parts.hostname or ""):
        return None
    return urllib.request.getproxies().get(parts.scheme)


def _one_line(error: Exception) -> str:
    return " ".join(str(error).split()) or type(error).__name__
