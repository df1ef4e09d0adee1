"""Who decides whether a cluster is changed where that is felt: the command line asks, nobody by default."""

from collections.abc import Callable
from contextvars import ContextVar
from datetime import UTC, datetime

from infra.errors import InvalidRun
from tasks.tuning import Approval, Approve, Proposal

Ask = Callable[[list[str]], bool]
"""All or nothing."""


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


def asked_of(ask: Ask, by: str) -> Approve:
    """Ask for all proposals at once; `by` is kept as who decided."""

    def approve(proposed: list[Proposal]) -> Approval:
        is_granted = ask([str(each) for each in proposed])
        knobs = frozenset(each.knob for each in proposed) if is_granted else None
        return Approval(knobs, record_of("approve" if is_granted else "reject", by))

    return approve


def record_of(decision: str, by: str) -> dict[str, str]:
    """What is kept of a decision."""
    return {"decision": decision, "by": by, "at": datetime.now(UTC).isoformat(timespec="seconds")}


approval: ContextVar[Approve] = ContextVar("approval", default=asked_of(nobody, ""))  # noqa: B039
"""A flow's parameters are plain values, so whom to ask cannot be one of them."""
