"""The per-snapshot restore lock of ceph-csi: restores of one snapshot are served one at a time.

A restore that finds the lock taken is Aborted and tried again by external-provisioner with
exponential back-off (ceph-csi#6354). Simulating each of those retries would be up to a million
events, so the lock is a queue with a service time, and the retries are written down.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field


@dataclass(slots=True)
class RestoreLock:
    """One queue per snapshot; `aborted_ns`: attempts that find the lock taken, those to come included."""

    retry_first_s: float
    retry_max_s: float
    aborted_ns: list[int] = field(default_factory=list)
    _free_ns: dict[str, int] = field(default_factory=dict)

    def reserve(self, snapshot: str, now_ns: int, service_s: float) -> int:
        """Queue for the snapshot's lock; returns the moment at which the restore has let it go."""
        starts = max(now_ns, self._free_ns.get(snapshot, now_ns))
        self.aborted_ns.extend(self._retries(now_ns, starts))
        done = self._free_ns[snapshot] = starts + round(service_s * 1e9)
        return done

    def _retries(self, now_ns: int, starts_ns: int) -> Iterator[int]:
        """Attempts that fail during a wait, with a delay that doubles from first to max."""
        at_ns, delay_s = now_ns, self.retry_first_s
        while at_ns < starts_ns:
            yield at_ns
            at_ns += round(delay_s * 1e9)
            delay_s = min(delay_s * 2, self.retry_max_s)
