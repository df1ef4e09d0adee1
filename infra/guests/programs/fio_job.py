"""fio's job file as fio reads it: sections of options, the global ones under each job's own."""

from dataclasses import dataclass

from infra.errors import GuestError

_SIZES = {"k": 1 << 10, "m": 1 << 20, "g": 1 << 30, "t": 1 << 40}
_TIMES_US = {"us": 1.0, "usec": 1.0, "ms": 1e3, "msec": 1e3, "s": 1e6, "m": 60e6, "h": 3600e6, "d": 86400e6}


@dataclass(frozen=True, slots=True)
class FioSection:
    """One job: its own options, and the global ones; a flag without a value is the empty text."""

    name: str
    shared: dict[str, str]
    own: dict[str, str]

    def text(self, option: str, default: str = "") -> str:
        """The value of an option."""
        return self.own.get(option, self.shared.get(option, default))

    def size(self, option: str, default: int = 0) -> int:
        """A size in bytes: `4k`, `5M`, `11010048000`."""
        text = self.text(option).lower()
        if not text:
            return default
        return int(text[:-1]) * _SIZES[text[-1]] if text[-1] in _SIZES else int(text)

    def us(self, option: str, unit: str = "s") -> float:
        """A time in microseconds; a bare number is in `unit`."""
        text = self.text(option, "0").lower()
        suffix = text.lstrip("0123456789.") or unit
        return float(text.removesuffix(suffix)) * _TIMES_US[suffix]

    def has(self, option: str) -> bool:
        """Whether a flag or an option is set."""
        return option in self.own or option in self.shared


def section_named(text: str, name: str) -> FioSection | None:
    """One job of a file; the others are not read."""
    wanted = ("global]", f"{name}]")
    blocks = (block for block in f"\n{text}".split("\n[") if block.startswith(wanted))
    return next(
        (job for job in sections("\n".join(f"[{block}" for block in blocks)) if job.name == name), None
    )


def sections(text: str) -> list[FioSection]:
    """The jobs of a file, in order.

    Raises:
        GuestError: a line outside of any section, as fio says it.
    """
    shared: dict[str, str] = {}
    jobs: list[tuple[str, dict[str, str]]] = []
    holder: dict[str, str] | None = None
    for raw in text.splitlines():
        line = raw.strip()
        if not line or line[0] in "#;":
            continue
        if line.startswith("[") and line.endswith("]"):
            holder = shared if line == "[global]" else {}
            if holder is not shared:
                jobs.append((line[1:-1], holder))
            continue
        if holder is None:
            raise GuestError(f"fio: job file: {line!r} is in no section")
        name, _, value = line.partition("=")
        holder[name.strip()] = value.strip()
    return [FioSection(name, shared, own) for name, own in jobs]
