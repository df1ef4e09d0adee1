"""Whether this caller may do what the plan needs: asked of the API server, right by right."""

from infra.cluster.kinds import NAMESPACE, SUBJECT_ACCESS_REVIEW
from infra.cluster.port import Ref
from infra.world import World
from tasks.ownership import find, is_lent
from tasks.profile import Profile
from tasks.requests import resent
from tasks.rights import STAGES, Right, rights_of


async def denied(world: World, profile: Profile) -> tuple[list[Right], int]:
    """The rights of the profile's stages that are missing, and how many were asked for.

    Those of other stages are asked for as well: a question takes its time, and a stage that is measured alone
    is to find the same virtual cluster as in a study.
    """
    own = not await are_lent(world, profile)
    wanted = rights_of(profile.stages, profile, own_namespaces=own)
    asked = dict.fromkeys(map(_question, rights_of(STAGES, profile, own_namespaces=own)))
    missing = {right for right in asked if not await _allowed(world, right)}
    return [right for right in wanted if _question(right) in missing], len(wanted)


def _question(right: Right) -> Right:
    """What the API server is asked: not how much it matters."""
    return right._replace(optional=False, own=False, unseen="")


async def are_lent(world: World, profile: Profile) -> bool:
    """Whether somebody lent both namespaces, so that none is made or deleted."""
    places = dict.fromkeys((profile.namespace, profile.golden_namespace))
    found = [await find(world, Ref(NAMESPACE, "", place)) for place in places]
    return all(each is not None and is_lent(each) for each in found)


def named(right: Right) -> str:
    """`create virtualmachines in virtscale`."""
    where = f" in {right.namespace}" if right.namespace else ""
    name = f" {right.name}" if right.name else ""
    return f"{right.verb} {right.resource}{name}{where}"


async def _allowed(world: World, right: Right) -> bool:
    attributes = {
        "verb": right.verb,
        "group": right.kind.group,
        "resource": right.kind.plural,
        "subresource": right.subresource,
        "namespace": right.namespace,
        "name": right.name,
    }
    review = {
        "apiVersion": SUBJECT_ACCESS_REVIEW.api_version,
        "kind": SUBJECT_ACCESS_REVIEW.kind,
        "metadata": {},
        "spec": {"resourceAttributes": {key: value for key, value in attributes.items() if value}},
    }
    answer = await resent(world, lambda: world.cluster.create(review))
    return bool((answer.get("status") or {}).get("allowed"))
