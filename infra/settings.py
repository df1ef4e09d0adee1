"""What the environment may set: places and limits of this machine, never what a benchmark does.

The only module that reads environment variables. Every function reads at call time, so a test may change
the environment, and nothing happens at import.
"""

import os
import re
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import urlsplit

from infra.errors import ProfileError

DEFAULT_API_CONNECTIONS = 64
DEFAULT_SPOOL_MIB = 4096
SHORTEST_SECRET = 16
_WHOLE_NUMBER = re.compile("[0-9]{1,9}")


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
    return _whole_number("VIRTSCALE_API_CONNECTIONS", DEFAULT_API_CONNECTIONS)


def is_own_cluster(server: str) -> bool:
    """Whether this process runs in a pod of the cluster whose API server is at the address `server`."""
    own, host = os.environ.get("KUBERNETES_SERVICE_HOST", ""), urlsplit(server).hostname or ""
    service = "kubernetes.default.svc.cluster.local"
    return bool(own) and (host == own or f"{service}.".startswith(f"{host}."))


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


def processes() -> int:
    """How many stages of a virtual cluster run at once: `VIRTSCALE_PROCESSES`, else one a CPU.

    Raises:
        ProfileError: the value is not a positive whole number.
    """
    return _whole_number("VIRTSCALE_PROCESSES", os.cpu_count() or 1)


def prefect_api_url() -> str:
    """The Prefect API that the user runs: `PREFECT_API_URL`; empty when virtscale should bring its own."""
    return os.environ.get("PREFECT_API_URL", "").strip()


def secrets(name: str) -> tuple[str, ...]:
    """The secrets that `name` holds, or the file that `name`_FILE names, one a line; none: an empty tuple.

    Raises:
        ProfileError: the file cannot be read, or a secret is shorter than 16 characters.
    """
    text = os.environ.get(name, "")
    if path := os.environ.get(f"{name}_FILE"):
        try:
            text = Path(path).expanduser().read_text(encoding="utf-8")
        except (OSError, UnicodeDecodeError) as error:
            raise ProfileError(f"{name}_FILE={path}: cannot be read: {error}") from None
    found = tuple(line.strip() for line in text.splitlines() if line.strip())
    if any(len(each) < SHORTEST_SECRET for each in found):
        raise ProfileError(f"{name}: a secret is shorter than {SHORTEST_SECRET} characters")
    return found


@dataclass(frozen=True, slots=True)
class S3Settings:
    """How an S3 store is reached; what is empty is left to boto3's own configuration (AWS_ variables, files).

    `encryption` is `AES256`, `aws:kms` or `aws:kms:KEY-ID`; `customer_key_file` holds 32 bytes of an SSE-C
    key. `away_s`: how long the end of a run waits for a store that is away. `environment` changes whenever
    an AWS_ variable does.
    """

    endpoint: str = ""
    region: str = ""
    ca_bundle: str = ""
    encryption: str = ""
    customer_key_file: str = ""
    timeout_s: int = 20
    away_s: int = 120
    environment: int = 0


def s3() -> S3Settings:
    """The settings of an S3 store: `VIRTSCALE_S3_ENDPOINT` and so on, one variable per field.

    Raises:
        ProfileError: a number is none.
    """
    names = ("endpoint", "region", "ca_bundle", "encryption", "customer_key_file")
    texts = {name: os.environ.get(f"VIRTSCALE_S3_{name.upper()}", "").strip() for name in names}
    aws = sorted(item for item in os.environ.items() if item[0].startswith("AWS_"))
    return S3Settings(
        **texts,
        timeout_s=_whole_number("VIRTSCALE_S3_TIMEOUT_S", 20),
        away_s=_whole_number("VIRTSCALE_S3_AWAY_S", 120),
        environment=hash(tuple(aws)),
    )


def spool_mib() -> int:
    """The most that a run may spool on this machine, MiB: `VIRTSCALE_SPOOL_MIB`, 4096 by default.

    Raises:
        ProfileError: the value is not a positive whole number.
    """
    return _whole_number("VIRTSCALE_SPOOL_MIB", DEFAULT_SPOOL_MIB)


def _whole_number(name: str, default: int) -> int:
    value = os.environ.get(name, str(default))
    if not _WHOLE_NUMBER.fullmatch(value) or int(value) < 1:
        raise ProfileError(f"{name}={value!r}: give a whole number, 1 to 999999999")
    return int(value)
