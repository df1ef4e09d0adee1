"""Who may call: the server's certificate, one token, and the kubeconfig that holds both."""

import base64
import json
import os
import secrets
import ssl
from dataclasses import dataclass
from pathlib import Path

import yaml

from infra import settings
from infra.errors import ProfileError
from infra.testbed import pki

CONTEXT = "virtscale-served"
USER = "virtscale-admin"
GROUPS = ("system:masters", "system:authenticated")


@dataclass(frozen=True)
class Access:
    """The token that is let in, and the TLS context to listen with; `authority` is the CA's file."""

    token: str
    tls: ssl.SSLContext
    authority: Path


def default_kubeconfig() -> Path:
    """Where the kubeconfig is written unless somebody says otherwise."""
    return settings.state_dir() / "served" / "kubeconfig"


def new_access() -> Access:
    """A new token; keys and certificates of this machine, made once a month."""
    folder = settings.state_dir() / "served" / "pki"
    pki.ensure(folder)
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(folder / "apiserver.crt", folder / "apiserver.key")
    return Access(secrets.token_urlsafe(24), tls, folder / f"{pki.CLUSTER_CA}.crt")


def write_kubeconfig(file: Path, access: Access, server: str) -> None:
    """Write the administrator's kubeconfig, readable by the owner only; a symlink is followed.

    Raises:
        ProfileError: there is a file that is not a kubeconfig of a served cluster, or it cannot be written.
    """
    authority = base64.b64encode(access.authority.read_bytes()).decode()
    document = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [
            {"name": CONTEXT, "cluster": {"server": server, "certificate-authority-data": authority}}
        ],
        "users": [{"name": USER, "user": {"token": access.token}}],
        "contexts": [{"name": CONTEXT, "context": {"cluster": CONTEXT, "user": USER}}],
        "current-context": CONTEXT,
    }
    refuse_foreign(file)
    target = Path(os.path.realpath(file))
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        target.unlink(missing_ok=True)
        target.touch(mode=0o600)
        target.write_text(json.dumps(document, indent=1) + "\n")
    except OSError as error:
        raise ProfileError(f"kubeconfig {file} cannot be written: {error.strerror}; name another") from error


def refuse_foreign(file: Path) -> None:
    """Somebody's own kubeconfig is not overwritten.

    Raises:
        ProfileError: the file exists and holds anything but our own context.
    """
    if not file.exists():
        return
    try:
        found = yaml.safe_load(file.read_text())
        contexts = [each["name"] for each in found["contexts"]]
    except (OSError, UnicodeDecodeError, yaml.YAMLError, TypeError, KeyError):
        contexts = []
    if contexts != [CONTEXT]:
        raise ProfileError(
            f"{file} is not a served cluster's kubeconfig and is left alone; name another file"
        )
