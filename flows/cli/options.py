"""Options that several verbs share, and what they mean."""

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, TypeVar

import click

if TYPE_CHECKING:
    from tasks.profile import Profile

F = TypeVar("F", bound=Callable[..., Any])

DEFAULT_PROFILE = "study"
DEFAULT_CLUSTER = "virtual:study"
DEFAULT_STORE = "results"

store_option = click.option(
    "--store",
    default=DEFAULT_STORE,
    show_default=True,
    metavar="FOLDER|s3://BUCKET/PREFIX",
    help="Where the results are: a folder, or S3.",
)
cluster_option = click.option(
    "--cluster",
    default=DEFAULT_CLUSTER,
    show_default=True,
    metavar="CLUSTER",
    help="virtual, virtual:PRESET, virtual:FILE.toml or a kubeconfig context.",
)
json_option = click.option("--json", "as_json", is_flag=True, help="Print one JSON object on stdout.")
yes_option = click.option("--yes", is_flag=True, help="Do not ask.")
seed_option = click.option(
    "--seed",
    type=click.IntRange(0, 2**32 - 1),
    default=1,
    show_default=True,
    help="Seed of every random choice.",
)


def profile_options(command: F) -> F:
    """`--profile`, `--set`, `--stages`: what to run."""
    options = [
        click.option(
            "--profile",
            "profile_name",
            default=DEFAULT_PROFILE,
            show_default=True,
            metavar="NAME|FILE.toml",
            help="What to run.",
        ),
        click.option(
            "--set", "sets", multiple=True, metavar="KEY=VALUE", help="Change one key: boot.batches=1,2,4."
        ),
        click.option("--stages", metavar="STAGE,...", help="Only these stages, in the order of a study."),
    ]
    for option in reversed(options):
        command = option(command)
    return command


def resolved_profile(name: str, sets: Sequence[str], stages: str | None, cluster: str = "") -> "Profile":
    """The profile that the options ask for; how many golden sources a cluster's file says goes before it.

    Raises:
        ProfileError: one of them is wrong.
        InvalidRun: the description of the virtual cluster is wrong.
    """
    # Imported here: verbs that only read results do without profiles.
    from tasks.profile import load_profile, with_stages

    profile = load_profile(name, [*sources_of(cluster), *sets])
    if stages is None:
        return profile
    return with_stages(profile, [each.strip() for each in stages.split(",") if each.strip()])


def sources_of(cluster: str) -> list[str]:
    """The `--set` that the file of a virtual cluster stands for."""
    kind, _, preset = cluster.partition(":")
    if kind != "virtual" or not preset:
        return []
    # Imported here: verbs that only read results do without clusters.
    from flows.study import refused
    from infra.cluster.virtual.description import load_description

    with refused():
        sources = load_description(preset).golden_sources
    return [f"golden_image.sources={sources}"] if sources else []
