"""Runs on a served cluster, in real time, whose delays set the time and not the CPU. For `make prove-rgw`."""

import os
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

import tomli_w

from infra.cluster.virtual.description import PRESETS
from infra.served.access import CONTEXT
from tests.benchmarks.rgw_runs import words_of

SLOW = {
    "csi": {"restore_s": 0.3, "restore_spread": 0.0, "unlocked_s": 0.5},
    "kubelet": {"start_s": 2.0, "start_spread": 0.0, "stop_s": 1.0},
    "virt": {"domain_start_s": 1.0, "domain_spread": 0.0},
    "attach": {"attach_s": 1.0},
}
"""Delays that set the time: of two CPUs, a run of so few VMs takes a small part."""


@contextmanager
def serving(folder: Path) -> Iterator[None]:
    """A served cluster in a process of its own; the environment leads to it until the end."""
    described = tomllib.loads((PRESETS / "fast.toml").read_text())
    described = {**described, **{part: {**described[part], **keys} for part, keys in SLOW.items()}}
    preset, kubeconfig = folder / "slow.toml", folder / "kubeconfig"
    preset.write_text(tomli_w.dumps(described))
    command = [sys.executable, "-m", "flows", "cluster", "serve", "--preset", str(preset)]
    server = subprocess.Popen([*command, "--kubeconfig", str(kubeconfig)], stdout=subprocess.PIPE)
    try:
        assert server.stdout is not None
        server.stdout.readline()
        os.environ["KUBECONFIG"] = str(kubeconfig)
        yield
    finally:
        os.environ.pop("KUBECONFIG", None)
        server.terminate()
        server.communicate(timeout=30)


def served_words(folder: Path, batches: Sequence[int], stages: str) -> tuple[str, ...]:
    """The options of a run on it that deploys and boots these batches."""
    profile = folder / "served.toml"
    sizes = {"batches": list(batches)}
    profile.write_text(tomli_w.dumps({"name": "served", "deploy": sizes, "boot": sizes}))
    return (*words_of(str(profile), stages), "--cluster", CONTEXT)
