"""`python -m infra.testbed build|up|down|status|env`."""

import sys
import time
from pathlib import Path

import click

from infra.errors import VirtscaleError
from infra.testbed import binaries, servers, state

FOLDER = click.option(
    "--state",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=state.DEFAULT_FOLDER,
    help="state folder; .testbed in the checkout by default",
)


@click.group(help=f"A real kube-apiserver ({binaries.kubernetes_version()}) with etcd on loopback.")
def main() -> None:
    """The commands of the testbed."""


@main.command()
def build() -> None:
    """Build the servers that are missing in the cache (cold: 8 minutes on two quiet cores)."""
    built = binaries.build()
    binaries.snapshot_crd_files()
    click.echo(f"built {', '.join(built)}" if built else "nothing to build")


@main.command()
@FOLDER
def up(folder: Path) -> None:
    """Start the servers (building them first when missing); fine when they run."""
    started = time.monotonic()
    running = servers.up(folder.resolve())
    click.echo(f"{running.server} up after {time.monotonic() - started:.1f} s")
    click.echo(f"export KUBECONFIG={running.kubeconfig}  # context {state.CONTEXT}")


@main.command()
@FOLDER
@click.option("--wipe", is_flag=True, help="forget etcd's data, keys and logs, too")
def down(folder: Path, *, wipe: bool) -> None:
    """Stop the servers; fine when none runs."""
    folder = folder.resolve()
    servers.down(folder)
    if wipe:
        servers.forget(folder)
    click.echo("testbed is down")


@main.command()
@FOLDER
def status(folder: Path) -> None:
    """Say which servers run; exit 1 unless all do."""
    folder = folder.resolve()
    for name, alive in servers.is_alive(folder).items():
        process = servers.process(folder, name)
        click.echo(
            f"{name} up, pid {process.pid}, {process.rss_mib()} MiB" if alive and process else f"{name} down"
        )
    sys.exit(0 if all(servers.is_alive(folder).values()) else 1)


@main.command()
@FOLDER
def env(folder: Path) -> None:
    """Print what a shell needs to use the testbed."""
    click.echo(f"export KUBECONFIG={folder.resolve() / 'kubeconfig'}")


if __name__ == "__main__":
    try:
        main()
    except VirtscaleError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
