"""systemd of a virtual guest: transient units that go on while nobody is connected.

A unit is data in a file of the guest (what was started, when, in which boot), so it outlives the
process that models it; what it has done by now is worked out when somebody looks.
"""

from dataclasses import asdict, dataclass, replace
from hashlib import blake2b
from typing import Any

import orjson

from infra.cluster.virtual.machines import Machine
from infra.errors import GuestError

FOLDER = "/var/lib/virtscale/units"


@dataclass(frozen=True, slots=True)
class Unit:
    """A transient service: its command, start and end on the cluster's clock (None: it still runs)."""

    name: str
    argv: tuple[str, ...]
    boot_id: str
    started_ns: int
    stopped_ns: int | None = None

    def saved(self) -> bytes:
        """The unit's file."""
        return orjson.dumps(asdict(self))

    def end_ns(self, now_ns: int) -> int:
        """Until when it has run, seen from now."""
        return now_ns if self.stopped_ns is None else min(self.stopped_ns, now_ns)


def boot_id(machine: Machine) -> str:
    """What /proc/sys/kernel/random/boot_id says: another one after every power-on."""
    digest = blake2b(f"{machine.vm} {machine.sshd_ns}".encode(), digest_size=16).hexdigest()
    return "-".join((digest[:8], digest[8:12], digest[12:16], digest[16:20], digest[20:]))


def units_of(machine: Machine, files: dict[str, bytes]) -> list[Unit]:
    """The units of this boot: those of an earlier one went with it."""
    found = [_read(body) for path, body in files.items() if path.startswith(f"{FOLDER}/")]
    return [unit for unit in found if unit.boot_id == boot_id(machine)]


def _read(body: bytes) -> Unit:
    saved: dict[str, Any] = orjson.loads(body)
    return Unit(**{**saved, "argv": tuple(saved["argv"])})


def keep(files: dict[str, bytes], unit: Unit) -> None:
    """Write a unit's file."""
    files[f"{FOLDER}/{unit.name}"] = unit.saved()


def unit_named(machine: Machine, files: dict[str, bytes], name: str) -> Unit | None:
    """A loaded unit."""
    wanted = name.removesuffix(".service")
    return next((unit for unit in units_of(machine, files) if unit.name == wanted), None)


def start(machine: Machine, files: dict[str, bytes], arguments: tuple[str, ...], now_ns: int) -> bytes:
    """`systemd-run --unit=NAME [options] COMMAND...`.

    Raises:
        GuestError: no name was given, or such a unit is loaded already.
    """
    options = [each for each in arguments if each.startswith("--")]
    options = options[: next((i for i, each in enumerate(arguments) if not each.startswith("--")), 0)]
    names = [each.removeprefix("--unit=") for each in options if each.startswith("--unit=")]
    argv = arguments[len(options) :]
    if not names or not argv:
        raise GuestError(f"guest {machine.vm}: systemd-run: a unit's name and a command are needed")
    if unit_named(machine, files, names[0]) is not None:
        raise GuestError(
            f"guest {machine.vm}: Failed to start transient service unit: Unit {names[0]}.service "
            "was already loaded or has a fragment file."
        )
    keep(files, Unit(names[0], argv, boot_id(machine), now_ns))
    return f"Running as unit: {names[0]}.service\n".encode()


def show(unit: Unit | None, machine: Machine) -> bytes:
    """`systemctl show NAME`: the few properties that are looked at."""
    if unit is None:
        return b"LoadState=not-found\nActiveState=inactive\n"
    state = "active" if unit.stopped_ns is None else "inactive"
    entered_us = (unit.started_ns - (machine.sshd_ns or 0)) // 1000
    return f"LoadState=loaded\nActiveState={state}\nActiveEnterTimestampMonotonic={entered_us}\n".encode()


def stopped(unit: Unit, now_ns: int) -> Unit:
    """The unit after it was told to end."""
    return unit if unit.stopped_ns is not None else replace(unit, stopped_ns=now_ns)
