"""PURE. stress-ng's YAML (`--metrics --yaml FILE`): the noise beside a measurement, proven by its counters.

Format: stress-ng 0.15. The date is unquoted and would be read as a number of base 60, so every value is
taken as text. Rates are written beside counts and times, which checks both.
"""

import re
from collections import Counter
from dataclasses import dataclass
from datetime import UTC, datetime
from math import isfinite
from typing import NoReturn

import yaml

from infra.errors import ToolOutputError
from tasks.tool_output.reading import saying

TOOL = "stress-ng"
DIGIT = 1e-6
"""Width of the last digit of every number in the YAML."""

QUARTER_OF_AN_HOUR_S = 900
FURTHEST_ZONE_S = 14 * 3600

_ROW = re.compile(
    rb"metrc: \[\d+\] (?P<name>\S+) +(?P<ops>\d{1,18}) +(?P<wall>\d{1,12}(?:\.\d{1,9})?)"
    rb"(?: +[\d.]+){5} +(?P<rss>\d{1,18})\s*$",
    re.MULTILINE,
)
MOST_OPENINGS = 100
"""stress-ng nests by indentation; thousands of brackets would only keep the YAML reader busy."""

_OPENING = re.compile(rb"[\[{]|(?:- ){3}")
_PROBLEM = re.compile(r"stress-ng: (?:fail|error):|compromised|metrics.* corrupted|unsuccessful")
_KNOWN = {
    "stressor",
    "bogo-ops",
    "bogo-ops-per-second-usr-sys-time",
    "bogo-ops-per-second-real-time",
    "wall-clock-time",
    "user-time",
    "system-time",
    "cpu-usage-per-instance",
    "max-rss",
}


@dataclass(frozen=True, slots=True)
class Stressor:
    """What one kind of stressor did, all its instances together. Rates are as written; `extra` too."""

    name: str
    bogo_ops: int
    wall_s: float
    user_s: float
    system_s: float
    cpu_percent_per_instance: float
    max_rss_kib: int | None
    extra: dict[str, str]


@dataclass(frozen=True, slots=True)
class StressRun:
    """One run: when it ended its set-up (guest's wall clock, as text and epoch), and its stressors."""

    version: str
    date: str
    time: str
    epoch_s: int
    node: str
    stressors: tuple[Stressor, ...]
    problems: tuple[str, ...]
    """Lines of the console that make the noise doubtful."""


def parse_stress_ng(data: bytes, console: bytes = b"") -> StressRun:
    """The run in the YAML file; `console` is standard output or the log.

    Raises ToolOutputError for a damaged file, one without metrics, and rates that do not follow from
    counts and times.
    """
    root = _compose(data)
    system = _Mapping.of(_Mapping.of(root).node("system-info"))
    metrics = _Mapping.of(root).node("metrics")
    if not isinstance(metrics, yaml.SequenceNode) or not metrics.value:
        _wrong(metrics, "metrics: a list of stressors is expected")
    lines = console.decode(errors="replace").splitlines()
    _check_clock(system)
    stressors = tuple(_stressor(_Mapping.of(node)) for node in metrics.value)
    _check_console(console, stressors)
    return StressRun(
        version=system.text("stress-ng-version"),
        date=system.text("date-yyyy-mm-dd"),
        time=system.text("time-hh-mm-ss"),
        epoch_s=system.whole("epoch-secs"),
        node=system.text("nodename"),
        stressors=stressors,
        problems=tuple(line.strip() for line in lines if _PROBLEM.search(line)),
    )


def _compose(data: bytes) -> yaml.Node:
    if len(_OPENING.findall(data)) > MOST_OPENINGS:
        raise ToolOutputError(TOOL, "line 1", "not YAML of stress-ng: nested too deeply")
    try:
        root = yaml.compose(data, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        position = f"line {mark.line + 1} column {mark.column + 1}" if mark else "line 1"
        raise ToolOutputError(
            TOOL, position, f"not YAML: {error.problem or error.context}{saying(data)}"
        ) from error
    except yaml.YAMLError as error:
        raise ToolOutputError(TOOL, "line 1", f"not YAML: {' '.join(str(error).split())}") from error
    except RecursionError as error:
        raise ToolOutputError(TOOL, "line 1", "not YAML of stress-ng: nested too deeply") from error
    if root is None:
        raise ToolOutputError(TOOL, "line 1", "nothing was written")
    if not data.rstrip().endswith(b"\n..."):
        line = data.count(b"\n") + 1
        raise ToolOutputError(
            TOOL, f"line {line}", "cut off: stress-ng ends its file with a line of three dots"
        )
    return root


def _wrong(node: yaml.Node, problem: str) -> NoReturn:
    raise ToolOutputError(TOOL, f"line {node.start_mark.line + 1}", problem)


@dataclass(frozen=True, slots=True)
class _Mapping:
    """A mapping of the YAML, its values by key, where they stand, keys that are there more than once."""

    at: yaml.Node
    values: dict[str, yaml.Node]
    repeated: frozenset[str]

    @classmethod
    def of(cls, node: yaml.Node) -> "_Mapping":
        if not isinstance(node, yaml.MappingNode):
            _wrong(node, "keys with values are expected")
        pairs = [(str(key.value), value) for key, value in node.value]
        counts = Counter(key for key, _ in pairs)
        return cls(node, dict(pairs), frozenset(key for key, n in counts.items() if n > 1))

    def node(self, key: str) -> yaml.Node:
        if key not in self.values:
            _wrong(self.at, f"{key} is missing")
        if key in self.repeated:
            _wrong(self.values[key], f"{key} is there more than once")
        return self.values[key]

    def text(self, key: str) -> str:
        node = self.node(key)
        if not isinstance(node, yaml.ScalarNode) or not node.value:
            _wrong(node, f"{key}: text is expected")
        return str(node.value)

    def whole(self, key: str) -> int:
        written = self.text(key)
        if not re.fullmatch(r"0|[1-9]\d{0,19}", written):
            _wrong(self.node(key), f"{key}: a whole number is expected, not {written[:60]!r}")
        return int(written)

    def number(self, key: str) -> float:
        written = self.text(key)
        if not re.fullmatch(r"\d{1,30}(?:\.\d{1,12})?", written) or not isfinite(float(written)):
            _wrong(self.node(key), f"{key}: a number is expected, not {written[:60]!r}")
        return float(written)

    def check_rate(self, key: str, above: float, below: float) -> None:
        """The rate under a key is `above / below`, as far as the digits of `below` go; 0 for no time."""
        rate = self.number(key)
        expected = above / below if below else 0.0
        slack = DIGIT + expected * DIGIT / (below or 1.0)
        if abs(rate - expected) > slack:
            _wrong(self.node(key), f"{key}: {rate}, but count and time give {expected:.6f}")


def _stressor(found: _Mapping) -> Stressor:
    ops = found.whole("bogo-ops")
    wall_s, user_s, system_s = (found.number(f"{key}-time") for key in ("wall-clock", "user", "system"))
    found.check_rate("bogo-ops-per-second-real-time", ops, wall_s)
    found.check_rate("bogo-ops-per-second-usr-sys-time", ops, user_s + system_s)
    usage = found.number("cpu-usage-per-instance")
    _check_usage(found, usage, 100 * (user_s + system_s) / wall_s if wall_s else 0.0)
    return Stressor(
        name=found.text("stressor"),
        bogo_ops=ops,
        wall_s=wall_s,
        user_s=user_s,
        system_s=system_s,
        cpu_percent_per_instance=usage,
        max_rss_kib=found.whole("max-rss") if "max-rss" in found.values else None,
        extra={key: found.text(key) for key in found.values if key not in _KNOWN},
    )


def _check_clock(system: _Mapping) -> None:
    """Date and time are those of the epoch in some time zone."""
    written = f"{system.text('date-yyyy-mm-dd')} {system.text('time-hh-mm-ss')}"
    try:
        local = datetime.strptime(written, "%Y:%m:%d %H:%M:%S").replace(tzinfo=UTC)
    except ValueError:
        _wrong(system.node("date-yyyy-mm-dd"), f"not a date and time: {written[:60]!r}")
    ahead = int(local.timestamp()) - system.whole("epoch-secs")
    if ahead % QUARTER_OF_AN_HOUR_S or abs(ahead) > FURTHEST_ZONE_S:
        _wrong(system.node("epoch-secs"), f"epoch-secs is not {written} in any time zone")


def _check_console(console: bytes, stressors: tuple[Stressor, ...]) -> None:
    """The table on the console has the same counts, seconds and memory, when there is one."""
    shown = {row["name"].decode(errors="replace"): row for row in _ROW.finditer(console)}
    if shown and len(shown) != len(stressors):
        raise ToolOutputError(TOOL, "metrics", f"{len(stressors)} stressors, the console shows {len(shown)}")
    for each in stressors if shown else ():
        row = shown.get(each.name)
        same = (
            row is not None
            and int(row["ops"]) == each.bogo_ops
            and abs(float(row["wall"]) - each.wall_s) < 0.01
        )
        if row is None or not same or int(row["rss"]) != each.max_rss_kib:
            raise ToolOutputError(TOOL, f"metrics of {each.name}", "the console shows other figures")


def _check_usage(found: _Mapping, usage: float, together: float) -> None:
    """The usage of all instances is a whole multiple of that of one."""
    instances = max(1, round(together / usage)) if usage > DIGIT else 1
    if abs(usage * instances - together) > 1e-4 * instances + 1e-5 * together:
        _wrong(
            found.node("cpu-usage-per-instance"), f"cpu-usage-per-instance: {usage}, all use {together:.6f} %"
        )
