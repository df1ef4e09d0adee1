"""PURE. How the guests of a run are reached, and which address each of them has."""

from dataclasses import dataclass
from ipaddress import ip_network
from typing import Any

from infra.errors import InvalidRun


@dataclass(frozen=True, slots=True)
class SshSettings:
    """`cidr` gives every VM an address of its own, by its number; without it the VMI's status states one.

    `interface`: which of a VMI's interfaces, by its name; "" is the first. `nic`: what the guest calls it.
    `interval_s`: from one attempt to connect to the next. `jump`: `[user@]host[:port]` that guests are
    reached through, at most `jump_channels` on a connection. `in_pod`: we are in the cluster's network.
    """

    user: str = "root"
    namespace: str = "virtscale"
    interface: str = ""
    cidr: str = ""
    first_address: int = 10
    gateway: str = ""
    nic: str = "enp1s0"
    port: int = 22
    jump: str = ""
    jump_channels: int = 250
    in_pod: bool = False
    interval_s: float = 0.2
    logins_at_once: int = 256
    login_timeout_s: float = 120.0
    command_timeout_s: float = 60.0

    @property
    def path(self) -> str:
        """The way to a guest's port, as runs are compared by it."""
        where = f"cidr {self.cidr}" if self.cidr else f"VMI interface {self.interface or 'first'}"
        return f"ssh {self._way}, {where}, every {self.interval_s:g} s"

    @property
    def _way(self) -> str:
        if self.jump:
            return f"through jump host {jump_parts(self.jump)[1]}"
        return "from a pod" if self.in_pod else "direct"


def jump_parts(jump: str) -> tuple[str, str, int]:
    """User, host and port of `[user@]host[:port]`; "" and 0 where this user's SSH configuration decides."""
    user, _, place = jump.rpartition("@")
    host, _, port = place.partition(":") if place.count(":") == 1 else (place, "", "")
    return user, host, int(port or 0)


def assigned_address(settings: SshSettings, vm: str) -> str:
    """The address of a VM in the run's CIDR: names end with a number (0 without one).

    Raises:
        InvalidRun: the network is too small.
    """
    network = ip_network(settings.cidr, strict=False)
    last = vm.rpartition("-")[2]
    number = int(last) if last.isdigit() else 0
    place = settings.first_address + number
    if place >= network.num_addresses - 1:
        raise InvalidRun(f"guests.cidr {settings.cidr} has no address for {vm} (number {place}): widen it")
    return str(network[place])


def stated_address(settings: SshSettings, status: dict[str, Any]) -> str:
    """The address that a VMI's status states for the interface that is used; "" when there is none yet."""
    for interface in status.get("interfaces") or ():
        if not settings.interface or interface.get("name") == settings.interface:
            return str(interface.get("ipAddress") or "")
    return ""
