"""Where the keys of a run are: in the state folder of this machine (`VIRTSCALE_STATE`), never in a store."""

import shutil
from pathlib import Path

from infra.settings import state_dir


def key_folder(run_id: str) -> Path:
    """Of one run: its own key, and the guests' host keys as they were first seen."""
    return state_dir() / "ssh" / run_id


def forget_keys(folder: Path) -> None:
    """Delete the keys of a run; fine when there are none."""
    shutil.rmtree(folder, ignore_errors=True)
