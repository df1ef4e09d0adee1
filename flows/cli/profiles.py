"""`virtscale profile`: see what a profile says, or begin one of your own."""

from collections.abc import Sequence
from pathlib import Path

import click
import tomli_w

from flows.cli.options import DEFAULT_PROFILE
from infra.errors import ProfileError
from tasks.profile import load_profile
from tasks.profile_source import built_in_names

SETS = click.option("--set", "sets", multiple=True, metavar="KEY=VALUE", help="Change one key.")


@click.group()
def profile() -> None:
    """Show a profile with every key, or write a new one."""


@profile.command("show")
@click.argument("name", default=DEFAULT_PROFILE, metavar="[NAME|FILE.toml]")
@SETS
def show_command(*, name: str, sets: Sequence[str]) -> None:
    """Print the resolved profile as TOML; what is left out is unlimited."""
    click.echo(as_toml(name, sets), nl=False)


@profile.command("new")
@click.argument("path", type=click.Path(path_type=Path, dir_okay=False))
@click.option("--from", "origin", default=DEFAULT_PROFILE, show_default=True, help="Profile to begin with.")
@SETS
def new_command(*, path: Path, origin: str, sets: Sequence[str]) -> None:
    """Write a profile with every key to PATH, to be edited; a file that is there is left alone."""
    text = as_toml(origin, sets)
    try:
        with path.open("x", encoding="utf-8") as file:
            file.write(text)
    except FileExistsError:
        raise ProfileError(f"profile {path}: the file is there already; give another path") from None
    except OSError as error:
        raise ProfileError(f"profile {path}: cannot be written: {error.strerror}") from None
    click.echo(path)


@profile.command("list")
def list_command() -> None:
    """Print the names of the built-in profiles, each with its description."""
    for name in built_in_names():
        click.echo(f"{name:<8}{load_profile(name).description}")


def as_toml(name: str, sets: Sequence[str]) -> str:
    """A resolved profile, every key with its value; keys without one (unlimited) are left out."""
    resolved = load_profile(name, sets).model_dump(mode="json", exclude_none=True)
    return tomli_w.dumps(resolved)
