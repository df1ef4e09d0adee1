"""PURE. What a guest is told at its first boot: its name, our key, and its address where we assign it."""

from ipaddress import ip_network
from typing import Any

import yaml

from infra.guests.ssh.settings import SshSettings, assigned_address
from infra.manifests import CloudInit


def cloud_init(settings: SshSettings, vm: str, public_key: str) -> CloudInit:
    """User data and network data of one VM."""
    account: dict[str, Any] = {"name": settings.user, "ssh_authorized_keys": [public_key]}
    if settings.user != "root":
        account["sudo"] = "ALL=(ALL) NOPASSWD:ALL"
    user_data = {
        "hostname": vm,
        "preserve_hostname": False,
        "ssh_pwauth": False,
        "disable_root": settings.user != "root",
        "users": [account],
    }
    return CloudInit("#cloud-config\n" + _text(user_data), _network_data(settings, vm))


def _network_data(settings: SshSettings, vm: str) -> str:
    if not settings.cidr:
        return ""
    length = ip_network(settings.cidr, strict=False).prefixlen
    nic: dict[str, Any] = {"dhcp4": False, "addresses": [f"{assigned_address(settings, vm)}/{length}"]}
    if settings.gateway:
        nic["gateway4" if "." in settings.gateway else "gateway6"] = settings.gateway
    return _text({"version": 2, "ethernets": {settings.nic: nic}})


def _text(document: dict[str, Any]) -> str:
    return yaml.safe_dump(document, sort_keys=False, width=1000)
