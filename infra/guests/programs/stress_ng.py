"""stress-ng of a virtual guest: the YAML that it writes when it ends."""

from infra.guests.programs.tool_run import ToolRun

VERSION = "0.15.06"
BOGO_OPS_PER_S = {"cpu": 780.0, "vm": 8100.0, "timer": 2770.0}
"""Per instance in real time; measured once, they only say that something ran."""
USED_SHARE = 0.97


def result(run: ToolRun) -> bytes:
    """The file that `--yaml` names: system information, and metrics of each stressor."""
    lines = ["---", "system-info:", *(f"      {name}: {value}" for name, value in _system(run).items())]
    lines += ["", "metrics:"]
    for stressor in BOGO_OPS_PER_S:
        instances = int(run.option(f"--{stressor}") or 0)
        if instances:
            lines += [*_metrics(stressor, instances, run.seconds), ""]
    return "\n".join([*lines, "...", ""]).encode()


def _system(run: ToolRun) -> dict[str, object]:
    return {
        "stress-ng-version": VERSION,
        "run-by": "root",
        "date-yyyy-mm-dd": run.started.strftime("%Y:%m:%d"),
        "time-hh-mm-ss": run.started.strftime("%H:%M:%S"),
        "epoch-secs": int(run.started.timestamp()),
        "hostname": run.vm,
        "sysname": "Linux",
        "nodename": run.vm,
        "release": run.system["release"],
        "version": f"'{run.system['version']}'",
        "machine": "x86_64",
        "cpus": 4,
        "cpus-online": 4,
        "ticks-per-second": 100,
    }


def _metrics(stressor: str, instances: int, seconds: float) -> list[str]:
    operations = int(BOGO_OPS_PER_S[stressor] * instances * seconds)
    used_s = instances * seconds * USED_SHARE
    values = {
        "bogo-ops": operations,
        "bogo-ops-per-second-usr-sys-time": f"{operations / used_s if used_s else 0.0:.6f}",
        "bogo-ops-per-second-real-time": f"{operations / seconds if seconds else 0.0:.6f}",
        "wall-clock-time": f"{seconds:.6f}",
        "user-time": f"{used_s:.6f}",
        "system-time": "0.000000",
        "cpu-usage-per-instance": f"{USED_SHARE * 100:.6f}",
        "max-rss": 6508,
    }
    return [f"    - stressor: {stressor}", *(f"      {name}: {value}" for name, value in values.items())]
