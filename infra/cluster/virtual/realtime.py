"""What delays a real-time guest: the constants of the latency tools' model.

No published maximum is set anywhere. A maximum is what the mixture of wake-up, noise and stalls
gives to somebody who looks so and so often; docs/concepts/virtual-cluster.md says how.
"""

from pydantic import Field

from infra.cluster.virtual.part import Part


class Latency(Part):
    """Mechanisms that delay a thread on isolated CPUs."""

    wake_us: float = Field(
        3.2,
        gt=0,
        description="timer interrupt to running thread, median, us; assumption (bare metal: 2 to 4)",
    )
    wake_spread: float = Field(
        0.12, gt=0, le=1.0, description="spread of that, standard deviation of its log; assumption"
    )
    round_trip_us: float = Field(
        9.0, gt=0, description="frame to the peer and back, two passthrough NICs, median, us; assumption"
    )
    round_trip_spread: float = Field(
        0.06, gt=0, le=1.0, description="spread of that, standard deviation of its log; assumption"
    )
    noise_share: float = Field(
        0.02, le=1, description="samples that meet a neighbour's use of cache or memory, share; assumption"
    )
    noise_us: float = Field(0.5, gt=0, description="what such a meeting adds, mean, us; assumption")
    stall_per_s: float = Field(
        1 / 60, description="stalls of a whole CPU (SMIs, host work not kept away), per second; assumption"
    )
    stall_us: float = Field(
        50.0,
        gt=0,
        description="length of a stall, median, us; derived from the latency study (54/55 and 65 us)",
    )
    stall_spread: float = Field(
        0.03, gt=0, le=1.0, description="spread of that, standard deviation of its log; assumption"
    )
    loop_ns: float = Field(
        75.0, gt=0, le=1e6, description="one turn of oslat's loop, ns; measured (10^8 in 10 s)"
    )
    gap_first_ms: float = Field(
        10.0, description="shortest pause between two segments, ms; measured (10 to 70 ms)"
    )
    gap_last_ms: float = Field(70.0, description="longest pause between two segments, ms; measured")
