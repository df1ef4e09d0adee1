"""`virtscale roles`: what a cluster's administrator grants, as YAML for `kubectl apply --filename -`."""

from collections.abc import Sequence
from typing import Any

import click

from flows.cli.options import DEFAULT_PROFILE
from flows.cli.profiles import SETS
from flows.role_files import HOME, as_yaml
from tasks.profile import load_profile
from tasks.rights import STAGES
from tasks.roles import Account, lent_namespaces
from tasks.roles import roles as roles_of


class _Account(click.ParamType[Account]):
    """`NAMESPACE/NAME`."""

    name = "account"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Account:
        """Both parts, neither empty."""
        namespace, _, name = str(value).partition("/")
        if not namespace or not name:
            self.fail(f"{value!r} is not NAMESPACE/NAME", param, ctx)
        return Account(namespace, name)


@click.command()
@click.argument("stages", nargs=-1, metavar="[STAGE]...", type=click.Choice(list(STAGES)))
@click.option(
    "--profile",
    "profile_name",
    default=DEFAULT_PROFILE,
    show_default=True,
    metavar="NAME|FILE.toml",
    help="Whose namespaces, storage class and knobs.",
)
@SETS
@click.option(
    "--account",
    type=_Account(),
    default=f"{HOME}/virtscale",
    show_default=True,
    metavar="NAMESPACE/NAME",
    help="The ServiceAccount that gets the rights.",
)
@click.option(
    "--own-namespaces",
    is_flag=True,
    help="Runs make and delete their namespaces: rights in all instead of in lent ones.",
)
def roles(
    *, stages: Sequence[str], profile_name: str, sets: Sequence[str], account: Account, own_namespaces: bool
) -> None:
    """Print the Roles and ClusterRoles that STAGEs need (default: the profile's), no right more.

    The profile's namespaces are printed, too, lent to virtscale: runs use them and leave them. Guests over
    SSH and knobs that are to be set ask for rights of their own, so give the profile that will be run.
    """
    profile = load_profile(profile_name, sets)
    wanted = list(dict.fromkeys(stages or profile.stages))
    made = [*([] if own_namespaces else lent_namespaces(profile)), account.home, account.manifest]
    granted = [
        each
        for stage in wanted
        for each in roles_of(stage, profile, [account], own_namespaces=own_namespaces)
    ]
    click.echo(as_yaml([*made, *granted]), nl=False)
