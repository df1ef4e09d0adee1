"""Who decides whether a cluster is changed where that is felt: the command line asks, nobody by default."""

from collections.abc import Callable
from contextvars import ContextVar

from infra.errors import InvalidRun

Approve = Callable[[list[str]], bool]


def nobody(lines: list[str]) -> bool:
    """There is nobody to ask.

    Raises:
        InvalidRun: it says what would be changed, and how to allow it.
    """
    more = f" (and {len(lines) - 1} more)" if len(lines) > 1 else ""
    raise InvalidRun(
        f"tuning would set {lines[0]}{more}: allow it with --yes, or tuning.mode=audit only looks"
    )


def granted(_: list[str]) -> bool:
    """`--yes`."""
    return True


approval: ContextVar[Approve] = ContextVar("approval", default=nobody)
"""A flow's parameters are plain values, so whom to ask cannot be one of them."""
