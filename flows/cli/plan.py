"""`virtscale plan`: what a run would create, how long that takes, how much it needs; nothing is touched."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from tempfile import TemporaryDirectory
from typing import Any

import click

from flows.cli.options import cluster_option, json_option, profile_options, resolved_profile, seed_option
from flows.cli.sensitivity import Asked, case_of, show_sensitivity
from flows.cli.text import table
from flows.estimate import (
    GIB_PER_TIB,
    Needs,
    PlannedStage,
    boot_queues_s,
    deploy_queues_s,
    deploy_s,
    largest,
    longest,
    needs,
    planned_stages,
    storm_s,
    total_s,
)
from flows.sensitivity import small
from flows.study import refused
from infra.cluster.kinds import NODE
from infra.cluster.port import Object, Scope, list_all
from infra.cluster.virtual.description import Description, load_description
from infra.world import WorldSpec, open_world
from tasks.capacity import Fit, fit
from tasks.nodes import is_schedulable, need_of, rooms
from tasks.profile import Profile
from tasks.report_text import human_duration
from tasks.run import new_run_id


@click.command("plan")
@profile_options
@cluster_option
@click.option(
    "--sensitivity",
    is_flag=True,
    help="Halve and double each assumption of the virtual cluster: what changes?",
)
@click.option(
    "--size", type=click.IntRange(1), default=200, show_default=True, help="VMs of a --sensitivity run."
)
@click.option(
    "--constant", "varied", multiple=True, metavar="NAME", help="Vary this constant, not every assumption."
)
@click.option(
    "--processes", type=click.IntRange(1), default=2, show_default=True, help="--sensitivity runs at once."
)
@seed_option
@json_option
def plan(*, cluster: str, sensitivity: bool, as_json: bool, **options: Any) -> None:
    """Tell what `run` with the same options would do. Nothing is created or changed."""
    profile = resolved_profile(options["profile_name"], options["sets"], options["stages"], cluster)
    with refused():
        description = description_of(cluster)
        nodes, room = workers(cluster, small(profile, options["size"]) if sensitivity else profile)
    if sensitivity:
        asked = Asked(**{name: options[name] for name in ("size", "varied", "processes", "seed")})
        show_sensitivity(case_of(profile, description, room, asked), asked, as_json)
        return
    planned = planned_stages(profile, description)
    if as_json:
        click.echo(json.dumps(as_object(profile, planned, nodes) | {"fits": room and room.fits}))
        return
    click.echo(f"{profile.name} on {cluster} ({len(nodes):,} workers, {largest(profile):,} VMs largest)")
    rows = [(each.stage, each.what, each.creates, about(each.about_s)) for each in planned]
    whole = ("all", "", "", about(total_s(planned)))
    click.echo(table([("stage", "what", "creates", "about"), *rows, whole]))
    lines = [*narrow_lines(profile, description), *last_lines(profile, needs(profile), nodes, description)]
    click.echo("\n".join([*lines, *fit_lines(room)]))


def description_of(cluster: str) -> Description | None:
    """What a virtual cluster is; None for every other.

    Raises:
        ProfileError: no such preset or file, or it is wrong.
    """
    kind, _, name = cluster.partition(":")
    return load_description(name or "study") if kind == "virtual" else None


def workers(cluster: str, profile: Profile) -> tuple[list[Object], Fit | None]:
    """The nodes that take VMs, and whether the largest batch fits; read only, into a store thrown away."""
    with TemporaryDirectory() as store:
        spec = WorldSpec(new_run_id(), store, cluster, background_pods=profile.background_pods)
        with open_world(spec) as world:
            nodes = world.run(list_all(world.cluster, Scope(NODE))).items
            free = [room.free for room in world.run(rooms(world))]
    vms = largest(profile)
    room = fit(vms, need_of(profile.vm), free) if vms else None
    return [
        node
        for node in nodes
        if is_schedulable(node) and "devices.kubevirt.io/kvm" in node["status"].get("allocatable", {})
    ], room


def about(seconds: float | None) -> str:
    """An estimate for people."""
    return "not known" if seconds is None else human_duration(seconds)


def last_lines(
    profile: Profile, need: Needs, nodes: Sequence[Object], description: Description | None
) -> list[str]:
    """Space and needs of the largest batch."""
    lines = [
        f"space   {tib(need.disk_gib)} provisioned, {tib(need.raw_gib)} with three copies "
        "(clones share what they do not write)"
    ]
    if description:
        lines.append(
            f"        about {tib(need.vms * description.guest.copy_up_mib / 1024)} written by first boots"
        )
    vm = profile.vm
    share = f"; largest node share {-(-need.vms // len(nodes)):,} of {pods(nodes):,} pods" if nodes else ""
    return [*lines, f"needs   {need.vms:,} x {vm.cores} CPU, {vm.memory_gib:g} GiB{share}"]


def narrow_lines(profile: Profile, description: Description | None) -> list[str]:
    """What the largest deploy and the largest storm take on a virtual cluster, and what they wait for."""
    if description is None:
        return []
    lines, sources = [], profile.golden_image.sources
    if "deploy" in profile.stages:
        n = max(profile.deploy.batches)
        queues_s, whole_s = deploy_queues_s(n, sources, description), deploy_s(n, sources, description)
        lines.append(f"deploy  {n:,} VMs at once: {about(whole_s)}; most of it {narrowest(queues_s)}")
    if "boot" in profile.stages:
        n = max(profile.boot.batches)
        queues_s, whole_s = boot_queues_s(n, description), storm_s(n, description)
        lines.append(f"storm   {n:,} VMs at once: {about(whole_s)}; most of it {narrowest(queues_s)}")
    return lines


def narrowest(queues_s: Mapping[str, float]) -> str:
    """The longest queue and its time."""
    name = longest(queues_s)
    return f"{name} ({about(queues_s[name])})"


def fit_lines(room: Fit | None) -> list[str]:
    """Said only when the largest batch does not fit."""
    return [] if room is None or room.fits else [f"room    too little: {room.needed}; {room.found}"]


def tib(gib: float) -> str:
    """GiB for people."""
    return f"{gib / GIB_PER_TIB:,.1f} TiB" if gib >= GIB_PER_TIB else f"{gib:,.0f} GiB"


def pods(nodes: Sequence[Object]) -> int:
    """The fewest pods that any node takes."""
    return min(int(node["status"]["allocatable"].get("pods", 0)) for node in nodes)


def as_object(
    profile: Profile, planned: Sequence[PlannedStage], nodes: Sequence[Object]
) -> dict[str, object]:
    """The plan for machines: seconds and GiB."""
    return {
        "profile": profile.model_dump(mode="json"),
        "workers": len(nodes),
        "stages": [asdict(each) for each in planned],
        "about_s": total_s(planned),
        "needs": asdict(needs(profile)),
    }
