"""Puts `deployments/prefect.yaml` on a Prefect server: one set of deployments per cluster, one slot per set.

Runs of one cluster share one global concurrency limit, which no YAML can express and which
`prefect deploy` deletes. Applying again changes what differs, and says what that was; whether a schedule is
on, and those that people added, stay as they are found.
"""

import hashlib
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import yaml
from prefect.client.orchestration import SyncPrefectClient, get_client
from prefect.client.schemas.actions import WorkPoolCreate
from prefect.exceptions import ObjectNotFound, PrefectException
from prefect.flows import Flow, load_flow_from_entrypoint
from prefect.utilities.schema_tools.validation import ValidationError as SchemaError
from prefect.utilities.schema_tools.validation import validate
from prefect.workers.process import ProcessWorker
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from flows import automations
from infra.errors import ProfileError, VirtscaleError

ROOT = Path(__file__).parents[1]
FILE = ROOT / "deployments" / "prefect.yaml"
JOB_TEMPLATE = FILE.with_name("job-template.yaml")
DEFAULT_CLUSTER = "virtual:study"
COMPARED = (
    "description",
    "tags",
    "parameters",
    "entrypoint",
    "work_pool_name",
    "job_variables",
    "concurrency_options",
    "parameter_openapi_schema",
    "enforce_parameter_schema",
)

Json = dict[str, Any]


class Pool(BaseModel):
    """Which work pool a deployment's runs go to."""

    name: str


class Described(BaseModel):
    """One deployment as the file says it."""

    model_config = ConfigDict(extra="forbid")

    name: str
    entrypoint: str
    description: str
    tags: list[str]
    work_pool: Pool
    parameters: Json = {}
    concurrency_limit: Json | None = None
    schedules: list[Json] = Field(default_factory=list)


class Place(NamedTuple):
    """Where a set of deployments measures, and on whose machines its runs start."""

    cluster: str = DEFAULT_CLUSTER
    store: str = ""
    pool: str = ""
    pool_type: str = "process"


class Wanted(NamedTuple):
    """A deployment as the server should have it."""

    flow_name: str
    name: str
    body: Json
    schedules: list[Json]
    is_limited: bool

    def __str__(self) -> str:
        """How people and webhooks name it."""
        return f"{self.flow_name}/{self.name}"


def described(path: Path = FILE) -> list[Described]:
    """The deployments of the file.

    Raises:
        ProfileError: it is no such file.
    """
    try:
        return [Described.model_validate(each) for each in yaml.safe_load(path.read_text())["deployments"]]
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValidationError) as error:
        raise ProfileError(f"{path.name}: {' '.join(str(error).split())}") from None


def name_of(cluster: str) -> str:
    """The name of a cluster's deployments: letters, digits, dashes; two clusters never share one."""
    plain = re.sub(r"[^a-z0-9]+", "-", cluster.lower()).strip("-")
    is_itself = cluster == plain and not plain.startswith("virtual-")
    if is_itself or cluster == plain.replace("virtual-", "virtual:", 1):
        return plain
    return f"{plain[:60]}-{hashlib.sha256(cluster.encode()).hexdigest()[:6]}"


def limit_of(cluster: str) -> str:
    """The name of the limit that the runs of a cluster share."""
    return f"virtscale-{name_of(cluster)}"


def wanted(each: Described, place: Place) -> Wanted:
    """One deployment of the file for a place."""
    flow: Flow[..., Any] = load_flow_from_entrypoint(each.entrypoint, use_placeholder_flow=False)
    measures = "cluster" in each.parameters.get("request", {})
    name = name_of(place.cluster) if each.concurrency_limit else each.name
    request = {"cluster": place.cluster} if measures else {}
    request |= {"store": place.store} if place.store else {}
    collision = {"collision_strategy": "ENQUEUE"} if each.concurrency_limit else None
    body = {
        "name": name,
        "description": each.description,
        "tags": [*each.tags, *([f"cluster:{place.cluster}"] if each.concurrency_limit else [])],
        "parameters": {"request": request} if request else {},
        "entrypoint": each.entrypoint,
        "work_pool_name": place.pool or each.work_pool.name,
        "job_variables": {"working_dir": str(ROOT)},
        "concurrency_options": collision,
        "parameter_openapi_schema": schema_of(flow, request),
        "enforce_parameter_schema": True,
    }
    return Wanted(flow.name, name, body, each.schedules, each.concurrency_limit is not None)


def schema_of(flow: Flow[..., Any], request: Json) -> Json:
    """The run form: its cluster is the deployment's and no other, or the shared slot would be another's."""
    # Without the last word a parameter that the flow lacks crashes its process, which cannot say why.
    schema: Json = {**flow.parameters.model_dump(), "additionalProperties": False}
    (form,) = [each for each in schema["definitions"].values() if "run_id" in each["properties"]]
    for name, value in request.items():
        form["properties"][name]["default"] = value
    # PostgreSQL keeps a table's keys in an order of its own; the UI goes by this number.
    for position, described_field in enumerate(form["properties"].values()):
        described_field["position"] = position
    if "cluster" in request:
        form["properties"]["cluster"]["enum"] = [request["cluster"]]
        form["required"] = sorted({*form.get("required", ()), "cluster"})
    return schema


def apply(place: Place, path: Path = FILE) -> Iterator[str]:
    """Make the server's deployments what the file says; a line for each that was not, or one that all were.

    Raises:
        VirtscaleError: the server does not answer or refuses.
    """
    listed = [wanted(each, place) for each in described(path)]
    try:
        with get_client(sync_client=True) as client:
            changes = [line for line in _applied(client, listed, place) if line]
            changes += _automations(client, listed, place)
            changes += [line for each in listed for line in _hopeless(client, each)]
    except (httpx.HTTPError, PrefectException) as error:
        raise VirtscaleError(f"Prefect: {' '.join(str(error).split())[:500]}") from error
    yield from changes or [f"unchanged: {len(listed)} deployments of {place.cluster}"]


def _applied(client: SyncPrefectClient, listed: list[Wanted], place: Place) -> Iterator[str]:
    pools = {each.body["work_pool_name"] for each in listed}
    types: dict[str, str] = {}
    for pool in sorted(pools):
        types[pool], line = _pool(client, pool, place.pool_type)
        yield line
    limit_id, line = _limit(client, limit_of(place.cluster))
    yield line
    for each in listed:
        if types[each.body["work_pool_name"]] != "process":
            each.body["job_variables"] = {}
        yield _deployment(client, each, limit_id if each.is_limited else None)


def _automations(client: SyncPrefectClient, listed: list[Wanted], place: Place) -> Iterator[str]:
    (study,) = [each for each in listed if each.flow_name == "study"]
    found = _found(client, study)
    assert found is not None
    own = automations.of_cluster(name_of(place.cluster), found["id"], study.body["parameters"]["request"])
    yield from automations.applied(client, [*automations.everywhere(), *own])


def _pool(client: SyncPrefectClient, name: str, wanted_type: str) -> tuple[str, str]:
    """The type of a work pool, which is made where it is missing."""
    try:
        return client.read_work_pool(name).type, ""
    except ObjectNotFound:
        made = WorkPoolCreate(name=name, type=wanted_type, base_job_template=job_template(wanted_type))
        client.create_work_pool(made)
        return wanted_type, f"created work pool {name} ({wanted_type})"


def job_template(pool_type: str) -> Json:
    """What a pool's worker makes of a run: a process as Prefect does it, or our Job."""
    if pool_type == "process":
        return ProcessWorker.get_default_base_job_template()
    template: Json = yaml.safe_load(JOB_TEMPLATE.read_text())
    return template


def _limit(client: SyncPrefectClient, name: str) -> tuple[str, str]:
    """The id of the shared limit, which is made where it is missing, and set to one run."""
    try:
        found = client.read_global_concurrency_limit_by_name(name)
        if found.limit == 1 and found.active:
            return str(found.id), ""
        client.request("PATCH", "/v2/concurrency_limits/{id_or_name}", path_params={"id_or_name": name},
                       json={"limit": 1, "active": True})  # fmt: skip
        return str(found.id), f"changed limit {name}: 1 run at a time"
    except ObjectNotFound:
        answer = client.request("POST", "/v2/concurrency_limits/", json={"name": name, "limit": 1})
        return str(answer.json()["id"]), f"created limit {name}: 1 run at a time"


def _deployment(client: SyncPrefectClient, each: Wanted, limit_id: str | None) -> str:
    found = _found(client, each)
    if found is None:
        flow_id = str(client.create_flow_from_name(each.flow_name))
        body = each.body | {"flow_id": flow_id, "global_concurrency_limit_id": limit_id}
        client.request("POST", "/deployments/", json=body | {"schedules": _schedules(each.schedules)})
        return f"created {each}"
    differing = [name for name in COMPARED if not _is_equal(found.get(name), each.body[name])]
    if ((found.get("global_concurrency_limit") or {}).get("id")) != limit_id:
        differing.append("limit")
    if differing:
        body = {name: each.body[name] for name in COMPARED} | {"global_concurrency_limit_id": limit_id}
        client.request("PATCH", "/deployments/{id}", path_params={"id": found["id"]}, json=body)
    there = {schedule["slug"] for schedule in found["schedules"]}
    if new := [schedule for schedule in each.schedules if schedule["slug"] not in there]:
        client.request(
            "POST", "/deployments/{id}/schedules", path_params={"id": found["id"]}, json=_schedules(new)
        )
        differing.append("schedules")
    return f"changed {each}: {', '.join(differing)}" if differing else ""


def _hopeless(client: SyncPrefectClient, each: Wanted) -> Iterator[str]:
    """Schedules whose parameters the form refuses: the server takes them, and each of their runs fails."""
    found = _found(client, each) or {"schedules": []}
    for schedule in found["schedules"]:
        given = {**each.body["parameters"], **schedule["parameters"]}
        try:
            validate(given, each.body["parameter_openapi_schema"], raise_on_error=True)
        except SchemaError as error:
            name = schedule["slug"] or schedule["id"]
            yield f"refused schedule {name} of {each}: {error}; correct it in the UI, or its runs fail"


def _is_equal(found: Any, asked: Any) -> bool:
    """Whether the server has what is asked for; it fills in options of its own."""
    if isinstance(found, dict) and isinstance(asked, dict) and set(asked) == {"collision_strategy"}:
        return bool(found.get("collision_strategy") == asked["collision_strategy"])
    return bool(found == asked)


def _found(client: SyncPrefectClient, each: Wanted) -> Json | None:
    try:
        answer: Json = client.request(
            "GET",
            "/deployments/name/{flow_name}/{deployment_name}",
            path_params={"flow_name": each.flow_name, "deployment_name": each.name},
        ).json()
    except httpx.HTTPStatusError as error:
        if error.response.status_code == httpx.codes.NOT_FOUND:
            return None
        raise
    return answer


def _schedules(listed: list[Json]) -> list[Json]:
    return [
        {
            "schedule": {"cron": each["cron"], "timezone": each["timezone"]},
            "active": each["active"],
            "slug": each["slug"],
        }
        for each in listed
    ]
