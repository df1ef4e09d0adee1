"""docs/fidelity.md: what the comparison is good for, and its two tables."""

from collections.abc import Sequence

from tests.benchmarks.fidelity_rows import PUBLISHED, SWITCHED, Row, markdown

_PAGE = """<!-- written by `make fidelity` (tests/benchmarks/fidelity.py); do not edit -->
# Fidelity of the virtual cluster

{summary} Seed {seed}; another seed gives other digits. `make fidelity` runs everything again, at full
sizes, and exits with 1 when a row fails.

## What is claimed

- The virtual cluster shows the **shapes** that were published, each from a mechanism that real clusters
  have: a restore lock of a snapshot, token buckets of clients, a volume attacher that slows down when it
  is overloaded, a scheduler that scores images.
- Each mechanism alone makes its shape: with its switch off, the shape is gone (second table).
- The figures come from different clusters, so there is a preset for each: `study` is the reference study,
  `csi-lab` the lab of ceph-csi#6516, `launch-lab` that of kubevirt#7879. Constants have their unit, and
  their source or the word *assumption*, in `infra/cluster/virtual/description.py` and
  `deployments/clusters/`.

## What is not claimed

- **A virtual result never stands for a cluster.** Reports of virtual runs say VIRTUAL on their first
  screen; nothing here predicts what your cluster will do.
- Where the study printed charts without numbers (seconds of a batch, percentiles, VMs per node), the
  seconds here are the model's own. Only growth from batch to batch is compared.
- “Within 40 min” is an upper bound. The model takes it for the time itself; how far below it the study was
  is not published.
- Constants that are assumptions were set so that these rows hold. The rows test that one set of constants
  for each cluster meets all its figures at once, and that the mechanism is what makes them: they are no
  independent evidence for the constants.
- “22.7 min” and “25 s” depend on how fast VMIs were asked for, which kubevirt#7879 does not say; the
  preset assumes {rate}. The first comes from the calls that virt-controller makes for a VMI
  through its token bucket: eight, seven of them before Running (observed API versions,
  PodDisruptionBudget, pod, an Event for each of the two, Scheduling, Scheduled; then Ready), which a test
  counts. Which of them the controller of that time made is by recordings of a newer one, and by what
  kubevirt#13764 took away. The second comes from how long a node takes to start its pods.
- Why four snapshots give 100 a minute and not four times 34.6 is not published. The model's answer is the
  provisioner's client (three calls a volume at QPS 5) and the part of a restore outside the lock.
- Nobody published what HCO's pairs of limits do to deploys and boots; their direction is derived from what
  each pair raises and lowers. `study, limits alone` has the restore lock off, quick attachments and ample
  limits for everybody but KubeVirt, so that the pair is what is waited for. On the studied cluster as it is,
  100/200 and 200/400 give the same deploys (the restore lock lets 2.5 VMs a second through) and the same
  small storms (attachments: 4 a second, 10 workers of 2.5 s each): with either pair virt-controller makes
  more instances a second than that. The faster it is, the more VMs wait for an attachment at once: 1,600 stay
  below kubernetes#84169's threshold of 1,300 in progress with 100/200 and pass it with 200/400, which makes
  that storm slower. So the model says that a limit which is raised can cost time where the next stage has
  a regime of overload; how much depends on two assumptions (length of an attachment, factor of the overload).

## Published figures

{published}

## Switches

{switches}
"""


def page(published: Sequence[Row], switches: Sequence[Row], seed: int) -> str:
    """The whole page."""
    rows = [*published, *switches]
    passed = sum(row.passed for row in rows)
    summary = f"{passed} of {len(rows)} rows hold."
    rate = next(row.figure.preset for row in published if "requests/s" in row.figure.preset).split(", ")[1]
    return _PAGE.format(
        summary=summary,
        seed=seed,
        rate=rate,
        published=markdown(PUBLISHED, published),
        switches=markdown(SWITCHED, switches),
    )
