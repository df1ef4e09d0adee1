"""What guests are told and where they are looked for: pure, and what this machine must have room for."""

from dataclasses import replace
from pathlib import Path

import pytest
import yaml
from asyncssh import OPEN_ADMINISTRATIVELY_PROHIBITED, OPEN_CONNECT_FAILED, ChannelOpenError
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from infra.errors import InvalidRun
from infra.guests.ssh.banner import read_banner
from infra.guests.ssh.cloud_init import cloud_init
from infra.guests.ssh.jump import is_refused, is_silent
from infra.guests.ssh.probe import SILENCE_NS, Probe
from infra.guests.ssh.room import check_room, is_on_link
from infra.guests.ssh.settings import SshSettings, assigned_address, jump_parts, stated_address
from infra.manifests import Disk, Machine, Mark, Source, virtual_machine
from infra.settings import is_own_cluster
from tasks.profile import Guests, Profile
from tasks.run import guests_of

ROUTES = """Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask
eth0\t00000000\t0100000A\t0003\t0\t0\t0\t00000000
eth1\t000012C6\t00000000\t0001\t0\t0\t0\t0000FEFF
"""


@given(st.binary(max_size=2000))
def test_no_bytes_break_the_reader_of_banners(data: bytes) -> None:
    banner = read_banner(data)
    assert not (banner.ready and banner.wrong)
    assert banner.wrong.isprintable()


@pytest.mark.parametrize(
    ("data", "is_ready", "wrong"),
    [
        (b"SSH-2.0-OpenSSH_9.6\r\n", True, ""),
        (b"SSH-2.0-OpenS", False, ""),
        (b"hello\r\nSSH-2.0-x\r\n", True, ""),
        (b"SSH-1.5-old\n", False, "SSH-1.5-old"),
        (b"220 mail\r\n", False, "220 mail"),
        (b"", False, ""),
    ],
)
def test_a_banner_is_a_whole_line_of_ssh_2(data: bytes, is_ready: bool, wrong: str) -> None:
    assert read_banner(data) == (is_ready, wrong)


def test_silence_proves_nothing_about_its_last_second() -> None:
    probe = Probe("vm", "127.0.0.1", closed_ns=10, silent_ns=3 * SILENCE_NS)
    assert probe.not_open_ns(3 * SILENCE_NS + 1) == 2 * SILENCE_NS + 1
    assert replace(probe, closed_ns=3 * SILENCE_NS).not_open_ns(3 * SILENCE_NS + 1) == 3 * SILENCE_NS


@given(st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9), st.integers(0, 10**9))
def test_a_banner_bound_holds_what_an_earlier_visitor_would_have_seen(
    closed: int, open_after: int, seen_after: int, service: int
) -> None:
    opened = closed + open_after + seen_after
    banner = opened + service
    probe = Probe("vm", "127.0.0.1", closed_ns=closed, opened_ns=opened)
    at_once = closed + open_after + service
    assert closed <= probe.no_banner_ns(banner) <= at_once <= banner


def test_cloud_init_names_the_guest_and_brings_the_key() -> None:
    seed = cloud_init(SshSettings(user="cloud-user"), "t1-boot-0007", "ecdsa AAAA virtscale")
    assert seed.user_data.startswith("#cloud-config\n")
    data = yaml.safe_load(seed.user_data)
    assert data["hostname"] == "t1-boot-0007"
    assert data["users"][0]["ssh_authorized_keys"] == ["ecdsa AAAA virtscale"]
    assert data["disable_root"] is True
    assert seed.network_data == ""


def test_a_cidr_gives_every_vm_an_address_by_its_number() -> None:
    settings = SshSettings(cidr="198.18.0.0/18", gateway="198.18.0.1")
    assert assigned_address(settings, "t1-boot-0300") == "198.18.1.54"
    network = yaml.safe_load(cloud_init(settings, "t1-boot-0300", "key").network_data)
    assert network["ethernets"] == {
        "enp1s0": {"dhcp4": False, "addresses": ["198.18.1.54/18"], "gateway4": "198.18.0.1"}
    }
    with pytest.raises(InvalidRun, match="has no address for vm-6000"):
        assigned_address(replace(settings, cidr="198.18.0.0/20"), "vm-6000")


def test_the_address_of_the_named_interface_is_taken() -> None:
    status = {"interfaces": [{"name": "default", "ipAddress": "10.0.0.1"}, {"name": "net"}]}
    assert stated_address(SshSettings(), status) == "10.0.0.1"
    assert stated_address(SshSettings(interface="net"), status) == ""
    assert stated_address(SshSettings(), {}) == ""


def test_a_vm_carries_its_cloud_init_as_a_second_disk() -> None:
    machine = Machine(1, 2.0, Disk(21, "rbd", "ReadWriteMany", "Block"))
    seed = cloud_init(SshSettings(), "vm-1", "key")
    plain, seeded = (
        virtual_machine("vm-1", "ns", Mark("r", "n", "boot"), each, Source("g", "s"))
        for each in (machine, replace(machine, cloud_init=seed))
    )
    spec = seeded["spec"]["template"]["spec"]
    assert spec["volumes"][1] == {"name": "seed", "cloudInitNoCloud": {"userData": seed.user_data}}
    assert [disk["name"] for disk in spec["domain"]["devices"]["disks"]] == ["root", "seed"]
    assert len(plain["spec"]["template"]["spec"]["volumes"]) == 1


def test_guests_are_not_probed_unless_the_profile_says_so() -> None:
    assert guests_of(Profile()) is None
    found = guests_of(Profile(guests=Guests(path="ssh", user="fedora"), namespace="mine"))
    assert found == SshSettings(user="fedora", namespace="mine")


@pytest.mark.parametrize(
    ("settings", "path"),
    [
        (SshSettings(), "ssh direct, VMI interface first, every 0.2 s"),
        (SshSettings(in_pod=True), "ssh from a pod, VMI interface first, every 0.2 s"),
        (
            SshSettings(jump="ops@bastion:2200", cidr="198.18.0.0/18"),
            "ssh through jump host bastion, cidr 198.18.0.0/18, every 0.2 s",
        ),
    ],
)
def test_runs_are_compared_by_the_way_to_their_guests(settings: SshSettings, path: str) -> None:
    assert settings.path == path


@pytest.mark.parametrize(
    ("jump", "parts"),
    [
        ("bastion", ("", "bastion", 0)),
        ("ops@bastion.example:2200", ("ops", "bastion.example", 2200)),
    ],
)
def test_a_jump_host_is_named_as_ssh_names_it(jump: str, parts: tuple[str, str, int]) -> None:
    assert Guests(jump=jump).jump == jump
    assert jump_parts(jump) == parts


@pytest.mark.parametrize("jump", ["-oProxyCommand=x", "a b", "a,b", "ops@", "bastion:port"])
def test_what_names_no_jump_host_is_refused(jump: str) -> None:
    with pytest.raises(ValidationError, match="jump"):
        Guests(jump=jump)


@pytest.mark.parametrize(
    ("own", "server", "is_own"),
    [
        ("", "https://kubernetes.default.svc", False),
        ("10.96.0.1", "https://kubernetes.default.svc", True),
        ("10.96.0.1", "https://10.96.0.1:443", True),
        ("fd00::1", "https://[fd00::1]:443", True),
        ("10.96.0.1", "https://api.another.example:6443", False),
    ],
)
def test_only_in_a_pod_of_the_measured_cluster_are_we_in_its_network(
    monkeypatch: pytest.MonkeyPatch, own: str, server: str, is_own: bool
) -> None:
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", own)
    assert is_own_cluster(server) is is_own


@pytest.mark.parametrize(
    ("said", "refused", "silent"),
    [
        ("Connection refused", True, False),
        ("[Errno 111] Connect call failed ('198.18.0.9', 22)", True, False),
        ("No route to host", False, True),
        ("Connection timed out", False, True),
        ("Too many open files", False, False),
        ("", False, False),
    ],
)
def test_only_what_a_jump_host_says_of_the_guest_is_held_against_the_guest(
    said: str, refused: bool, silent: bool
) -> None:
    error = ChannelOpenError(OPEN_CONNECT_FAILED, said)
    assert (is_refused(error), is_silent(error)) == (refused, silent)
    prohibited = ChannelOpenError(OPEN_ADMINISTRATIVELY_PROHIBITED, said)
    assert (is_refused(prohibited), is_silent(prohibited)) == (False, False)


def test_a_gateway_outside_its_network_is_refused() -> None:
    with pytest.raises(ValidationError, match="is not in cidr"):
        Guests(path="ssh", cidr="198.18.0.0/18", gateway="10.0.0.1")
    with pytest.raises(ValidationError, match="host bits"):
        Guests(path="ssh", cidr="198.18.0.5/18")


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    for name, text in {
        "sys/net/ipv4/ip_local_port_range": "32768 33767\n",
        "sys/net/ipv4/neigh/default/gc_thresh3": "1024\n",
        "net/route": ROUTES,
    }.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    return tmp_path


def test_too_little_room_is_one_line_that_says_what_to_set(proc: Path) -> None:
    with pytest.raises(InvalidRun) as refused:
        check_room(2000, "198.18.0.0/18", proc=proc)
    assert str(refused.value) == (
        "guests over SSH: this machine cannot probe 2000 guests: 2000 ephemeral ports are needed, 1000 there "
        "(widen net.ipv4.ip_local_port_range); its neighbour table holds 1024 "
        "(set net.ipv4.neigh.default.gc_thresh3 to 4000)"
    )
    check_room(100, "198.18.0.0/18", proc=proc)
    with pytest.raises(InvalidRun, match="file descriptors are needed"):
        check_room(10**9, proc=proc)


def test_only_a_network_on_our_own_link_fills_the_neighbour_table(proc: Path) -> None:
    assert is_on_link("198.18.0.0/18", proc)
    assert not is_on_link("10.20.0.0/16", proc)
