"""Whether this machine has room for a storm's connections: checked before the release, said in one line."""

import resource
from ipaddress import IPv4Address, IPv4Network, ip_network
from pathlib import Path

from infra.errors import InvalidRun

SPARE = 256
"""File descriptors for everything else: the API's connections, spools, Python itself."""
PER_GUEST = 2
"""A guest that does not answer is waited for on two sockets."""
PROC = Path("/proc")


def check_room(guests: int, network: str = "", *, proc: Path = PROC) -> None:
    """Make sure that so many guests can be probed; the soft limit of open files is raised where it may be.

    `network`: the CIDR that their addresses are from, if it is known; only when it is on a link of this
    machine does every guest need a place in the neighbour table.

    Raises:
        InvalidRun: too few file descriptors, ephemeral ports or places in the neighbour table.
    """
    short = [_files(guests), _ports(guests, proc)]
    if network and is_on_link(network, proc):
        short.append(_neighbours(guests, proc))
    said = "; ".join(each for each in short if each)
    if said:
        raise InvalidRun(f"guests over SSH: this machine cannot probe {guests} guests: {said}")


def _files(guests: int) -> str:
    need = PER_GUEST * guests + SPARE
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft == resource.RLIM_INFINITY or soft >= need:
        return ""
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (need, hard))
    except (ValueError, OSError):
        return f"{need} file descriptors are needed, {soft} allowed (raise ulimit -n and -Hn)"
    return ""


def _ports(guests: int, proc: Path) -> str:
    numbers = _numbers(proc / "sys/net/ipv4/ip_local_port_range")
    if len(numbers) != 2 or (have := numbers[1] - numbers[0] + 1) >= guests:
        return ""
    return f"{guests} ephemeral ports are needed, {have} there (widen net.ipv4.ip_local_port_range)"


def _neighbours(guests: int, proc: Path) -> str:
    limit = _numbers(proc / "sys/net/ipv4/neigh/default/gc_thresh3")
    if not limit or limit[0] > guests:
        return ""
    return f"its neighbour table holds {limit[0]} (set net.ipv4.neigh.default.gc_thresh3 to {2 * guests})"


def is_on_link(network: str, proc: Path = PROC) -> bool:
    """Whether the narrowest IPv4 route to a CIDR has no gateway, so that each address is a neighbour."""
    wanted = ip_network(network, strict=False)
    try:
        lines = (proc / "net/route").read_text().splitlines()[1:]
    except OSError:
        return False
    routes = [words for words in map(str.split, lines) if len(words) > 7]
    found = [
        (route.prefixlen, gateway == 0)
        for route, gateway in ((_route(words[1], words[7]), int(words[2], 16)) for words in routes)
        if route.version == wanted.version and wanted.network_address in route
    ]
    return max(found, default=(0, False))[1]


def _route(destination: str, mask: str) -> IPv4Network:
    """Two numbers of /proc/net/route: hexadecimal, the first byte last."""
    address, netmask = (IPv4Address(bytes.fromhex(word)[::-1]) for word in (destination, mask))
    return IPv4Network(f"{address}/{netmask}")


def _numbers(path: Path) -> list[int]:
    try:
        return [int(word) for word in path.read_text().split()]
    except (OSError, ValueError):
        return []
