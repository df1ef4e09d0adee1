"""Which machine this is: a random name, kept in its state folder, where its locks are, too."""

import os
import secrets
from pathlib import Path

from infra.errors import StoreError
from infra.settings import state_dir

NAME = "machine"


def machine_id() -> str:
    """The name of this machine's state folder, made at the first call; of two that make it one wins.

    Raises:
        StoreError: it cannot be kept.
    """
    path = state_dir() / NAME
    try:
        return _kept(path) or _made(path)
    except OSError as error:
        raise StoreError(
            f"{path}: cannot be kept ({error.strerror}); choose another folder in VIRTSCALE_STATE"
        ) from error


def _kept(path: Path) -> str:
    try:
        return path.read_text(encoding="ascii", errors="replace").strip()
    except FileNotFoundError:
        return ""


def _made(path: Path) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    name = secrets.token_hex(6)
    draft = path.with_name(f"{NAME}.{name}")
    draft.write_text(f"{name}\n", encoding="ascii")
    try:
        os.link(draft, path)
    except FileExistsError:
        # An empty file is what a full disk left of one.
        if not _kept(path):
            draft.replace(path)
    finally:
        draft.unlink(missing_ok=True)
    return _kept(path)
