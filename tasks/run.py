"""One run: what was asked, under which id, and what it stands on."""

import secrets
from typing import Self

from pydantic import Field, model_validator

from infra.guests.ssh.settings import SshSettings
from infra.manifests import SLOTS
from infra.results.manifest import check_run_id
from infra.world import WorldSpec
from tasks.profile import Profile, Section
from tasks.records import TABLES

PREPARATIONS = frozenset({"preflight", "tuning", "golden-image", "clean/0", "revert"})
"""Stages that change what every measured stage of a run finds; `clean/<stage>` is clean in one copy alone."""

_MOODS = ("brave", "calm", "fair", "gentle", "keen", "late", "neat", "plain", "quick", "quiet", "warm")
_BIRDS = ("crane", "finch", "gull", "heron", "kite", "lark", "merlin", "owl", "swift", "tern", "wren")


class RunRequest(Section):
    """Everything that a run depends on, as plain values: it is the parameter of the Prefect flow."""

    run_id: str = Field("", description="left empty: the flow run's id, or a new one")
    profile: Profile = Field(Profile(), description="what to run")
    cluster: str = Field("virtual:study", description="virtual[:PRESET or FILE.toml] or a context")
    store: str = Field("results", description="folder of the results")
    seed: int = Field(1, ge=0, lt=2**32, description="seed of every random choice")
    faults: str = Field("", description="file of faults to inject into the virtual cluster")
    keep: bool = Field(False, description="leave the run's objects on the cluster")
    shards: int = Field(0, ge=0, le=SLOTS, description="processes that share a batch; 0: this one drives all")
    dask: str = Field("", description="address of a Dask scheduler; left empty: a cluster on this machine")

    @model_validator(mode="after")
    def _named(self) -> Self:
        if self.run_id:
            check_run_id(self.run_id)
        return self

    def spec(self, stage: str = "") -> WorldSpec:
        """The world that a stage of this run opens; without one, that of the preparations."""
        return WorldSpec(
            run_id=self.run_id,
            store=self.store,
            cluster=self.cluster,
            seed=self.seed,
            faults=self.faults,
            background_pods=self.profile.background_pods,
            lineage=lineage(stage),
            guests=guests_of(self.profile),
            schemas=TABLES,
        )


def guests_of(profile: Profile) -> SshSettings | None:
    """How guests of a live cluster are reached."""
    section = profile.guests
    if section.path == "none":
        return None
    return SshSettings(namespace=profile.namespace, **section.model_dump(exclude={"path"}))


def lineage(stage: str) -> frozenset[str]:
    """What a virtual cluster has been through when a stage begins: preparations, and the stage's own past.

    Each measured stage goes on from a copy of the prepared cluster: a stage that is measured alone, or beside
    others, or after them gives the same rows.
    """
    return PREPARATIONS | {stage, f"clean/{stage}"}


def new_run_id() -> str:
    """A run id that people can say: `7f3a-quiet-heron`."""
    return f"{secrets.token_hex(2)}-{secrets.choice(_MOODS)}-{secrets.choice(_BIRDS)}"
