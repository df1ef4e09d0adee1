"""What the environment may set: places and limits of this machine, never what a benchmark does.

The only module that reads environment variables. Every function reads at call time, so a test may change
the environment, and nothing happens at import.
"""

import os
from pathlib import Path

from infra.errors import ProfileError

DEFAULT_API_CONNECTIONS = 64


def cache_dir() -> Path:
    """The folder for things that are built once a machine: `VIRTSCALE_CACHE`, else the XDG cache folder's."""
    if explicit := os.environ.get("VIRTSCALE_CACHE"):
        return Path(explicit).expanduser()
    if xdg := os.environ.get("XDG_CACHE_HOME"):
        return Path(xdg) / "virtscale"
    return Path.home() / ".cache" / "virtscale"


def crd_schemas() -> Path | None:
    """The folder of real CRD schemas that `VIRTSCALE_CRD_SCHEMAS` names, or None when it names none."""
    value = os.environ.get("VIRTSCALE_CRD_SCHEMAS")
    return Path(value).expanduser() if value else None


def api_connections() -> int:
    """The most connections to one API server: `VIRTSCALE_API_CONNECTIONS`, 64 by default.

    Raises:
        ProfileError: the value is not a positive whole number.
    """
    value = os.environ.get("VIRTSCALE_API_CONNECTIONS", str(DEFAULT_API_CONNECTIONS))
    if not value.isdigit() or int(value) < 1:
        raise ProfileError(f"VIRTSCALE_API_CONNECTIONS={value!r}: give a whole number of 1 or more")
    return int(value)


def kubeconfig() -> str:
    """Where contexts are looked up: `KUBECONFIG`, one path or several as for kubectl, else kubectl's own."""
    return os.environ.get("KUBECONFIG") or str(Path.home() / ".kube" / "config")


def state_dir() -> Path:
    """The folder for what outlives a command: `VIRTSCALE_STATE`, else the XDG state folder's."""
    if explicit := os.environ.get("VIRTSCALE_STATE"):
        return Path(explicit).expanduser()
    if xdg := os.environ.get("XDG_STATE_HOME"):
        return Path(xdg) / "virtscale"
    return Path.home() / ".local" / "state" / "virtscale"


def prefect_api_url() -> str:
    """The Prefect API that the user runs: `PREFECT_API_URL`; empty when virtscale should bring its own."""
    return os.environ.get("PREFECT_API_URL", "").strip()
