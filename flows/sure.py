"""What makes sure, before a batch is committed, that its cluster was held for its run all the time."""

from collections.abc import Callable
from contextvars import ContextVar

sure: ContextVar[Callable[[], None] | None] = ContextVar("sure that the cluster is held", default=None)
"""Raises when it was not; None on a virtual cluster, where nobody else can be."""
