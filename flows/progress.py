"""Who is told how a run goes on: the command line in the foreground, nobody by default."""

from collections.abc import Mapping
from contextvars import ContextVar
from typing import Any, Protocol

from flows.steps import Step

Summary = Mapping[str, Any]
"""What a stage returns: plain JSON, the headline of what it did."""


class Progress(Protocol):
    """Hears of every step, in order, in the process that runs the flow."""

    def waits(self, text: str) -> None:
        """The run does not go on yet: what it waits for, and who has that."""
        ...

    def started(self, step: Step) -> None:
        """The step begins now."""
        ...

    def finished(self, step: Step, summary: Summary) -> None:
        """The step is done; `summary["skipped"]` is true when its commit was there before."""
        ...


class Silent:
    """Tells nobody."""

    def waits(self, text: str) -> None:
        """Nothing to tell."""

    def started(self, step: Step) -> None:
        """Nothing to tell."""

    def finished(self, step: Step, summary: Summary) -> None:
        """Nothing to tell."""


progress: ContextVar[Progress] = ContextVar("progress", default=Silent())  # noqa: B039
"""A flow's parameters are plain values, so the listener cannot be one of them."""
