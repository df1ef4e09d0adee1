"""PURE. Nearest-rank percentiles over all VMs of a batch, the unfinished right-censored.

A VM whose step was not observed has no value for it (None); it is never dropped and never counted
as zero or as the limit. Its true value lies beyond every observed one, so it ranks last, and a
percentile that falls on it is None: "beyond the limit".
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from math import ceil
from typing import Any, NamedTuple

from tasks.records import QUANTILES, STEPS

METHOD = "nearest-rank"


class BatchKey(NamedTuple):
    """Which measured batch: stage (`deploy`, `delete`, `boot`, `stop`), size, repeat from 1."""

    stage: str
    batch: int
    repeat: int = 1


def rank_of(n: int, q: float) -> int:
    """The 1-based nearest rank of the `q`-th percentile of `n` values: ceil(q/100 x n), exact, at least 1."""
    if not 0 <= q <= 100:
        raise ValueError(f"percentile {q} is not within 0 and 100")
    return max(1, ceil(Fraction(str(q)) * n / 100))


def nearest_rank(values: Sequence[float | None], q: float) -> float | None:
    """The `q`-th percentile (0 to 100) of all values, None for one that falls among the unfinished.

    Values share one unit; None marks a VM that was not seen to finish. No values: None.
    """
    return _at_rank(sorted(value for value in values if value is not None), len(values), q)


def _at_rank(observed: Sequence[float], n: int, q: float) -> float | None:
    rank = rank_of(n, q)
    return observed[rank - 1] if rank <= len(observed) else None


def step_values(vms: Sequence[Mapping[str, Any]], step: str, basis: str) -> list[float | None]:
    """One step of every VM in seconds: from the batch's release, or from the VM's own request.

    A step that was observed counts even when the VM failed afterwards.
    """
    return [_step_value(vm, step, basis) for vm in vms]


def _step_value(vm: Mapping[str, Any], step: str, basis: str) -> float | None:
    reached = vm.get(f"{step}_s")
    if basis == "release" or reached is None:
        return reached
    requested = vm.get("requested_s")
    return None if requested is None else float(reached - requested)


def percentile_rows(
    key: BatchKey,
    vms: Sequence[Mapping[str, Any]],
    limit_s: float | None,
    observable: Collection[str] | None = None,
) -> list[dict[str, Any]]:
    """Rows of table `percentiles` for every step of a batch, from all of its VM rows.

    Args:
        key: the batch.
        vms: one row per VM of the batch, columns as in the stage's VM table.
        limit_s: what an unfinished VM is known to exceed, seconds from the release.
        observable: steps (without `_s`) that this world can see; others get no rows. None: all.

    `n_ok` counts the VMs whose step was observed, `n_censored` the others: together they are `n`.
    """
    steps = [step for step in STEPS[key.stage] if observable is None or step in observable]
    return [
        {**key._asdict(), "step": step, "basis": basis, "limit_s": limit_s, "method": METHOD, **facts}
        for step in steps
        for basis in ("release", "request")
        for facts in _quantiles(step_values(vms, step, basis), [vm.get(f"{step}_error_s") for vm in vms])
    ]


def _quantiles(values: Sequence[float | None], errors: Sequence[float | None]) -> Iterator[dict[str, Any]]:
    n, n_ok = len(values), sum(value is not None for value in values)
    counts = {"n": n, "n_ok": n_ok, "n_censored": n - n_ok}
    for q, (value_s, error_s) in bounded_ranks(values, errors, QUANTILES).items():
        yield {"q": q, "value_s": value_s, "error_s": error_s, **counts}


def bounded_ranks(
    values: Sequence[float | None], errors: Sequence[float | None], qs: Iterable[float]
) -> dict[float, tuple[float | None, float | None]]:
    """Percentiles of all values as `nearest_rank` gives them, each with how wide it was observed.

    That is None where the percentile is, and where a value's bound is not known.
    """
    observed = sorted(value for value in values if value is not None)
    earliest, n = _earliest(values, errors), len(values)
    return {q: _bounded(_at_rank(observed, n, q), _at_rank(earliest, n, q)) for q in qs}


def _bounded(value: float | None, earliest: float | None) -> tuple[float | None, float | None]:
    return value, None if value is None or earliest is None else value - earliest


def _earliest(values: Sequence[float | None], errors: Sequence[float | None]) -> list[float]:
    """The same steps, each as early as its error bound allows; empty where a bound is not known.

    A percentile lies between that of these and that of what was seen: ranks keep their order.
    """
    pairs = [(value, error) for value, error in zip(values, errors, strict=True) if value is not None]
    if any(error is None for _, error in pairs):
        return []
    return sorted(value - error for value, error in pairs if error is not None)
