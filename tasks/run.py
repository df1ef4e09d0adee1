"""One run: what was asked, under which id, and what it stands on."""

import re
import secrets
from typing import Self

from pydantic import Field, model_validator

from infra.errors import ProfileError
from infra.world import WorldSpec
from tasks.profile import Profile, Section

RUN_ID = re.compile(r"[a-z0-9]([-a-z0-9]{0,38}[a-z0-9])?")
_MOODS = "brave calm dry early fair gentle keen late loud neat plain quick quiet steady tall warm".split()
_BIRDS = "crane curlew finch grebe gull heron kite lark merlin owl plover raven swift tern wagtail wren".split()


class RunRequest(Section):
    """Everything that a run depends on, as plain values: it is also the parameter of the Prefect flow."""

    run_id: str = Field("", description="name of the run; left empty it is made up (under Prefect: the flow run's id)")
    profile: Profile = Field(Profile(), description="what to run")
    cluster: str = Field("virtual:study", description="virtual, virtual:PRESET, virtual:FILE.toml or a context")
    store: str = Field("results", description="folder or s3:// address of the results")
    seed: int = Field(1, description="seed of every random choice")
    faults: str = Field("", description="file of faults to inject into the virtual cluster")
    keep: bool = Field(False, description="leave the run's objects on the cluster")

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.run_id:
            checked_run_id(self.run_id)
        return self

    def spec(self) -> WorldSpec:
        """The world that every stage of this run opens."""
        return WorldSpec(
            run_id=self.run_id,
            store=self.store,
            cluster=self.cluster,
            seed=self.seed,
            faults=self.faults,
            background_pods=self.profile.background_pods,
        )


def new_run_id() -> str:
    """A run id that people can say: `7f3a-quiet-heron`."""
    return f"{secrets.token_hex(2)}-{secrets.choice(_MOODS)}-{secrets.choice(_BIRDS)}"


def checked_run_id(run_id: str) -> str:
    """The run id itself.

    Raises:
        ProfileError: it could not be a label of an object and a part of a file's name.
    """
    if not RUN_ID.fullmatch(run_id):
        raise ProfileError(
            f"--run-id {run_id}: use 1 to 40 small letters, digits and dashes, no dash at either end"
        )
    return run_id
