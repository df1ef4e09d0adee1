"""Tuning that changes a cluster asks in the Prefect UI: the run is suspended, and its process ends.

Who resumes it fills in a form; the run goes on in a new process, which finds the answer. What is then done is
what was shown: a knob that stands otherwise by then is left as it is.
"""

from collections.abc import Callable
from hashlib import sha256
from typing import Any, Literal

from prefect import suspend_flow_run, task
from prefect.context import FlowRunContext
from prefect.input import RunInput
from pydantic import Field, create_model

from flows.approval import asked_of, granted, nobody, record_of
from infra.results.commits import read_commits
from infra.results.open import open_store
from infra.world import open_world
from tasks.run import RunRequest
from tasks.tuning import STAGE, Approval, Approve, Proposal, proposals

HOUR_S = 3600
Decide = Callable[[RunRequest], Approve]
"""Whom a run's tuning asks; may end the process."""


class Decision(RunInput):
    """What the form of a suspended run asks."""

    decision: Literal["approve", "reject", "leave these knobs"] = Field(
        title="Decision", description="reject ends the run; leave these knobs sets the others"
    )
    leave: tuple[str, ...] = Field((), title="Knobs to leave", description="With: leave these knobs")
    by: str = Field("", title="Your name", max_length=100, description="Kept with the results")


def decider(*, approved: bool, hours: int) -> Decide:
    """Whom to ask: nobody when it is approved before; else the UI, if a worker can go on with the run."""
    if approved:
        return lambda _: asked_of(granted, "the form's Approved")
    context = FlowRunContext.get()
    if context is None or context.flow_run is None or context.flow_run.deployment_id is None:
        return lambda _: asked_of(nobody, "")
    return lambda request: decided(request, hours)


def decided(request: RunRequest, hours: int) -> Approve:
    """The decision on what tuning would set now; suspends the run until there is one.

    Raises:
        prefect.exceptions.Pause: the run is suspended; this process ends.
    """
    proposed = [Proposal(*each) for each in planned(request.model_dump(mode="json"))]
    if not proposed:
        return asked_of(granted, "nobody: there was nothing to ask")
    form = form_of(proposed).with_initial_data(description=text_of(proposed, request.cluster, hours))
    answer = suspend_flow_run(wait_for_input=form, timeout=hours * HOUR_S, key=key_of(request, proposed))
    return answered(answer, proposed)


@task(name="tuning plan", task_run_name="tuning plan", retries=0, persist_result=False)
def planned(request: dict[str, Any]) -> list[Proposal]:
    """What tuning would set; reads only, and anew each time."""
    asked = RunRequest.model_validate(request)
    with open_world(asked.spec(STAGE)) as world:
        return world.run(proposals(world, asked.profile))


def form_of(proposed: list[Proposal]) -> type[Decision]:
    """The form, with the knobs that are asked about to choose from."""
    names: Any = Literal[tuple(each.knob for each in proposed)]
    knobs = Field((), title="Knobs to leave", description="With: leave these knobs")
    return create_model("Decision", __base__=Decision, leave=(tuple[names, ...], knobs))


def text_of(proposed: list[Proposal], cluster: str, hours: int) -> str:
    """What the form says above its fields."""
    disturbing = sum(bool(each.disturbance) for each in proposed)
    cells = [(p.knob, p.before or "not set", p.desired, p.object, p.disturbance or "-") for p in proposed]
    return "\n".join(
        [
            f"## Tuning of {cluster}",
            f"{len(proposed)} settings differ; {disturbing} of them disturb the cluster. "
            f"Without an answer within {hours} h the run fails and nothing is changed.\n",
            "| knob | now | wanted | object | what it does |",
            "|---|---|---|---|---|",
            *(f"| {' | '.join(row)} |" for row in cells),
        ]
    )


def key_of(request: RunRequest, proposed: list[Proposal]) -> str:
    """Another plan is another question, and so is the same one after tuning was tried or refused."""
    commits = read_commits(open_store(request.store), request.run_id)
    tried = sum(each.cell.stage == STAGE for each in commits)
    return f"tuning-{tried}-{sha256(repr(proposed).encode()).hexdigest()[:12]}"


def answered(answer: Decision, shown: list[Proposal]) -> Approve:
    """The decision as tuning asks for it."""
    record = record_of(answer.decision, answer.by or "unknown")
    refused = answer.decision == "reject"
    left = set(answer.leave) if answer.decision == "leave these knobs" else set()

    def approve(proposed: list[Proposal]) -> Approval:
        allowed = frozenset(each.knob for each in proposed if each in shown and each.knob not in left)
        return Approval(None if refused else allowed, {**record, "left": sorted(left)})

    return approve
