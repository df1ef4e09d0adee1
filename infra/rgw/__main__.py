"""`python -m infra.rgw install|up|down|status|env`."""

import sys
import time
from pathlib import Path

import click

from infra.errors import VirtscaleError
from infra.rgw import configuration, daemons, packages
from infra.rgw.configuration import DEFAULT_FOLDER, Gateway

FOLDER = click.option(
    "--state",
    "folder",
    type=click.Path(path_type=Path, file_okay=False),
    default=DEFAULT_FOLDER,
    help="state folder; .rgw in the checkout by default",
)


@click.group(help="A real Ceph RADOS Gateway on loopback.")
def main() -> None:
    """The commands of the gateway."""


@main.command()
def install() -> None:
    """Install Debian's Ceph packages that are missing (root; half a minute)."""
    installed = packages.install()
    click.echo(f"installed {' '.join(installed)}" if installed else "nothing to install")


@main.command()
@FOLDER
@click.option("--kind", type=click.Choice(["bluestore", "memstore"]), default="bluestore", show_default=True)
@click.option("--size-gib", type=int, default=16, show_default=True, help="size of the sparse OSD")
@click.option("--tls", is_flag=True, help="answer by https, with a certificate of an authority of its own")
def up(folder: Path, kind: configuration.ObjectStoreKind, size_gib: int, *, tls: bool) -> None:
    """Start it (making it when there is none); fine when it runs."""
    began = time.monotonic()
    running = daemons.up(Gateway(folder.resolve(), 0, kind, size_gib, tls=tls))
    click.echo(f"{running.endpoint} up after {time.monotonic() - began:.1f} s")
    click.echo(f"eval $(python -m infra.rgw env --state {folder})  # then: --store s3://BUCKET/PREFIX")


@main.command()
@FOLDER
@click.option("--wipe", is_flag=True, help="forget its data, too")
def down(folder: Path, *, wipe: bool) -> None:
    """Stop it; fine when it does not run."""
    daemons.down(folder.resolve(), wipe=wipe)
    click.echo("rgw is down")


@main.command()
@FOLDER
def status(folder: Path) -> None:
    """Say which daemons run; exit 1 unless all do."""
    found = {name: daemons.alive(folder.resolve(), name) for name in (daemons.MON, daemons.OSD, daemons.RGW)}
    for name, pid in found.items():
        click.echo(f"{name} up, pid {pid}" if pid else f"{name} down")
    sys.exit(0 if all(found.values()) else 1)


@main.command()
@FOLDER
def env(folder: Path) -> None:
    """Print what a shell needs to use it."""
    gateway = configuration.read(folder.resolve())
    if gateway is None:
        raise VirtscaleError(f"rgw {folder}: none was started there; `python -m infra.rgw up` starts one")
    for name, value in gateway.environment().items():
        click.echo(f"export {name}={value}")


if __name__ == "__main__":
    try:
        main()
    except VirtscaleError as error:
        click.echo(f"error: {error}", err=True)
        sys.exit(error.exit_code)
