"""`virtscale serve`: the webhook receiver in the foreground."""

import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import click
import uvicorn

from flows.prefect_client import connect
from flows.webhook.rules import FILE, load_rules
from flows.webhook.signatures import Secrets, standard_key
from infra import settings
from infra.errors import ProfileError
from infra.prefect_server import free_port

if TYPE_CHECKING:
    from flows.webhook.starting import Starter

FILE_OPTION = click.Path(exists=True, dir_okay=False, path_type=Path)
CONNECTIONS = 200
"""More at once are answered 503 before anything of them is read."""


@click.command("serve")
@click.option("--host", default="127.0.0.1", show_default=True, help="Address to listen on.")
@click.option("--port", type=click.IntRange(1, 65535), default=4280, show_default=True, help="Port.")
@click.option("--rules", "rules_file", type=FILE_OPTION, default=FILE, help="What may be started.")
@click.option("--tls-cert", type=FILE_OPTION, help="Certificate chain (PEM).")
@click.option("--tls-key", type=FILE_OPTION, help="Its key (PEM).")
def serve(*, host: str, port: int, rules_file: Path, tls_cert: Path | None, tls_key: Path | None) -> None:
    """Start deployments when a signed request asks for it, or an event.

    POST /hooks/NAME; or a sender's own events: POST /events/github, /events/gitlab, /events/alertmanager.

    Secrets, one a line, in a file or in a variable: VIRTSCALE_WEBHOOK_SECRET[_FILE] signs timestamp and body,
    VIRTSCALE_WEBHOOK_GITHUB_SECRET[_FILE] is GitHub's, VIRTSCALE_WEBHOOK_TOKEN[_FILE] a bearer token.
    For events only: VIRTSCALE_WEBHOOK_GITLAB_TOKEN[_FILE], VIRTSCALE_WEBHOOK_GITLAB_SIGNING_TOKEN[_FILE],
    VIRTSCALE_WEBHOOK_ALERTMANAGER_TOKEN[_FILE].
    """
    rules, known = load_rules(rules_file), known_secrets()
    if (tls_cert is None) != (tls_key is None):
        raise ProfileError("TLS needs both --tls-cert and --tls-key")
    free_port(port, host)
    connect()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    logging.getLogger("httpx").setLevel(logging.WARNING)
    # Imported here: it builds on Prefect, which reads its settings at import.
    from flows.webhook.app import application

    config = uvicorn.Config(
        application(rules, known, lambda: opened(rules.limits.prefect_s)),
        host=host,
        port=port,
        access_log=False,
        server_header=False,
        log_level="warning",
        limit_concurrency=CONNECTIONS,
        timeout_keep_alive=5,
        timeout_graceful_shutdown=10,
        ssl_certfile=tls_cert,
        ssl_keyfile=tls_key,
    )
    uvicorn.Server(config).run()


def known_secrets() -> Secrets:
    """The secrets of the environment.

    Raises:
        ProfileError: there is none, so nobody could start anything.
    """
    known = Secrets(
        settings.secrets("VIRTSCALE_WEBHOOK_SECRET"),
        settings.secrets("VIRTSCALE_WEBHOOK_GITHUB_SECRET"),
        settings.secrets("VIRTSCALE_WEBHOOK_TOKEN"),
        settings.secrets("VIRTSCALE_WEBHOOK_GITLAB_TOKEN"),
        settings.secrets("VIRTSCALE_WEBHOOK_ALERTMANAGER_TOKEN"),
        signing_keys("VIRTSCALE_WEBHOOK_GITLAB_SIGNING_TOKEN"),
    )
    if not known:
        raise ProfileError("serve: no secret; set VIRTSCALE_WEBHOOK_SECRET_FILE (virtscale serve --help)")
    return known


def signing_keys(name: str) -> tuple[bytes, ...]:
    """The keys in GitLab's signing tokens.

    Raises:
        ProfileError: one is no such token.
    """
    try:
        return tuple(standard_key(each) for each in settings.secrets(name))
    except ValueError as error:
        raise ProfileError(f"{name}: {error}") from None


@asynccontextmanager
async def opened(limit_s: float) -> AsyncIterator["Starter"]:
    """A starter on a client of its own."""
    from prefect.client.orchestration import get_client

    from flows.webhook.starting import PrefectStarter

    async with get_client() as client:
        yield PrefectStarter(client, limit_s)
