"""PURE. Numbers as people read them: `2 min 41 s`, `> 30 min`, `6,000`."""

from collections.abc import Sequence


def human_duration(seconds: float | None) -> str:
    """Seconds as text: `0.42 s`, `12.3 s`, `2 min 41 s`, `1 h 04 min`; None is `not measured`."""
    if seconds is None:
        return "not measured"
    if seconds < 0:
        return f"-{human_duration(-seconds)}"
    if round(seconds, 1) < 60:
        return f"{seconds:.2f} s" if seconds < 10 else f"{seconds:.1f} s"
    if round(seconds) < 3600:
        minutes, rest = divmod(round(seconds), 60)
        return f"{minutes} min {rest} s" if rest else f"{minutes} min"
    hours, minutes = divmod(round(seconds / 60), 60)
    return f"{hours} h {minutes:02} min" if minutes else f"{hours} h"


def beyond(limit_s: float | None) -> str:
    """What stands where a value is null because it lies beyond the limit: `> 30 min`."""
    return "> limit" if limit_s is None else f"> {human_duration(limit_s)}"


def duration_or_beyond(value_s: float | None, limit_s: float | None) -> str:
    """A duration, or `> limit` where it is null."""
    return beyond(limit_s) if value_s is None else human_duration(value_s)


def with_error(value_s: float | None, error_s: float | None, limit_s: float | None) -> str:
    """A duration with its error bound where one is known: `2 min 41 s ±0.1 s`; `> limit` where it is null."""
    text = duration_or_beyond(value_s, limit_s)
    return text if value_s is None or error_s is None else f"{text} ±{error_s:.2g} s"


def percent(share: float) -> str:
    """A share as `71 %`."""
    return f"{share * 100:.0f} %"


_STEP_NAMES = {
    "pvc_bound": "PVC bound",
    "datavolume_succeeded": "DataVolume succeeded",
    "vmi_created": "VMI created",
    "vmi_scheduled": "VMI scheduled",
    "ip_known": "IP known",
    "tcp_open": "TCP open",
    "ssh_banner": "SSH banner",
    "ssh_ready": "SSH ready",
}


def step_name(step: str) -> str:
    """A step as people write it: `SSH ready` for `ssh_ready`."""
    return _STEP_NAMES.get(step, step.replace("_", " "))


def listed(words: Sequence[str]) -> str:
    """`a`, `a and b`, `a, b and c`."""
    *most, last = words
    return f"{', '.join(most)} and {last}" if most else last
