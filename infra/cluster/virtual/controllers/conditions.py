"""How operators report: lists of conditions, and what a share of machines is."""

from collections.abc import Mapping

from infra.clock import Clock
from infra.cluster.port import Object


def reported(clock: Clock, states: Mapping[str, bool], message: str = "") -> list[Object]:
    """One condition per type, as OpenShift's operators write them."""
    now = clock.wall().strftime("%Y-%m-%dT%H:%M:%SZ")
    return [
        {
            "type": kind,
            "status": str(state),
            "reason": "AsExpected" if not message else "Reported",
            "message": message,
            "lastTransitionTime": now,
        }
        for kind, state in states.items()
    ]


def same_states(obj: Object, states: Mapping[str, bool]) -> bool:
    """Whether an object's conditions say just that."""
    conditions = (obj.get("status") or {}).get("conditions") or []
    return {each["type"]: each["status"] for each in conditions} == {k: str(v) for k, v in states.items()}


def how_many(unavailable: int | str, machines: int) -> int:
    """maxUnavailable, a number or a share in percent, of so many machines: at least one."""
    text = str(unavailable)
    count = int(text.rstrip("%")) * machines // 100 if text.endswith("%") else int(text)
    return max(1, count)


def selects(labels: Mapping[str, str] | None, obj: Object) -> bool:
    """Whether equality labels select an object; no labels select nothing."""
    having = obj["metadata"].get("labels") or {}
    return bool(labels) and all(having.get(key) == value for key, value in (labels or {}).items())
