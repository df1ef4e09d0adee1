"""What an RGW needs on this machine: Debian's Ceph packages, installed by apt where that is permitted."""

import os
import shutil
import subprocess

from infra.errors import StoreError

PROGRAMS = ("ceph-mon", "ceph-osd", "radosgw", "radosgw-admin", "monmaptool", "ceph")
PACKAGES = ("radosgw", "ceph-mon", "ceph-osd", "ceph-common")
_WAIT_FOR_LOCK = ("-o", "DPkg::Lock::Timeout=500")


def missing() -> list[str]:
    """Programs that are not there yet."""
    return [name for name in PROGRAMS if shutil.which(name) is None]


def install() -> list[str]:
    """Install what is missing; returns the packages that were asked for, none when all is there.

    Raises:
        StoreError: it cannot be installed here.
    """
    if not missing():
        return []
    if shutil.which("apt-get") is None or os.geteuid() != 0:
        raise StoreError(
            f"rgw: {', '.join(missing())} missing; install {' '.join(PACKAGES)} (Debian 12 has them)"
        )
    environment = {**_plain_environment(), "DEBIAN_FRONTEND": "noninteractive"}
    for words in (["update"], ["install", "--yes", "--no-install-recommends", *PACKAGES]):
        command = ["apt-get", *_WAIT_FOR_LOCK, "--quiet=2", *words]
        done = subprocess.run(command, env=environment, capture_output=True, text=True, check=False)
        if done.returncode:
            last = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
            raise StoreError(f"rgw: {' '.join(command)} failed: {last}")
    return list(PACKAGES)


def require() -> None:
    """Nothing when everything is installed.

    Raises:
        StoreError: something is missing; the text says how to install it.
    """
    if missing():
        raise StoreError(f"rgw: {', '.join(missing())} missing; `python -m infra.rgw install` installs them")


def _plain_environment() -> dict[str, str]:
    return {"PATH": os.defpath + ":/usr/sbin:/sbin"}
