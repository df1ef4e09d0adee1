"""Builds etcd, kube-apiserver, kube-controller-manager and kubectl from the pinned modules in `go/`.

A binary is kept in the cache folder under a key of everything it was made from (go.mod, go.sum, flags), so a
machine pays once, and a changed pin is a new folder beside the old one. Two builds are byte-identical:
`-trimpath`, no VCS stamp, a fixed build date.
"""

import fcntl
import hashlib
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from infra import settings
from infra.errors import ClusterError

GO_MODULES = Path(__file__).parent / "go"
SNAPSHOTTER = "github.com/kubernetes-csi/external-snapshotter/client/v8"
SNAPSHOT_CRDS = ("volumesnapshotclasses", "volumesnapshotcontents", "volumesnapshots")
FLAGS = ("-mod=readonly", "-trimpath", "-buildvcs=false")
VERSION_PACKAGE = "k8s.io/component-base/version"


@dataclass(frozen=True)
class Binary:
    """One program: its file name, the module folder that pins it, its main package."""

    name: str
    module: str
    package: str


BINARIES = (
    Binary("etcd", "etcd", "go.etcd.io/etcd/server/v3"),
    Binary("kube-apiserver", "kube", "k8s.io/kubernetes/cmd/kube-apiserver"),
    Binary("kube-controller-manager", "kube", "k8s.io/kubernetes/cmd/kube-controller-manager"),
)
KUBECTL = Binary("kubectl", "kube", "k8s.io/kubernetes/cmd/kubectl")
"""For tests: what people use, of the same version."""


def kubernetes_version() -> str:
    """The pinned version of Kubernetes, as `v1.2.3`."""
    text = (GO_MODULES / "kube" / "go.mod").read_text()
    match = re.search(r"^\s*k8s\.io/kubernetes (v\S+)", text, re.MULTILINE)
    if match is None:
        raise ClusterError(f"{GO_MODULES / 'kube' / 'go.mod'}: no k8s.io/kubernetes in it")
    return match.group(1)


def link_flags(module: str) -> str:
    """The linker's flags: no symbol table, and the version stamp which `/version` answers with."""
    if module != "kube":
        return "-s -w"
    version = kubernetes_version()
    major, minor, _ = version.removeprefix("v").split(".", 2)
    stamps = {
        "gitVersion": version,
        "gitMajor": major,
        "gitMinor": minor,
        "gitTreeState": "archive",
        "gitCommit": "unknown",
        "buildDate": "1970-01-01T00:00:00Z",
    }
    return " ".join(["-s -w", *(f"-X {VERSION_PACKAGE}.{key}={value}" for key, value in stamps.items())])


def folder(module: str) -> Path:
    """The cache folder of what is made from `module`, keyed by all that it is made from."""
    digest = hashlib.sha256()
    for part in ("go.mod", "go.sum"):
        digest.update((GO_MODULES / module / part).read_bytes())
    digest.update(" ".join((*FLAGS, link_flags(module))).encode())
    return settings.cache_dir() / "testbed" / f"{module}-{digest.hexdigest()[:16]}"


def path(binary: Binary) -> Path:
    """Where `binary` is, or will be once built."""
    return folder(binary.module) / binary.name


def paths() -> dict[str, Path]:
    """Name and file of every server."""
    return {binary.name: path(binary) for binary in BINARIES}


def missing() -> list[Binary]:
    """The programs that are not built yet."""
    return [binary for binary in (*BINARIES, KUBECTL) if not path(binary).exists()]


def build() -> list[str]:
    """Build what is missing and return its names; needs `go` only when something is missing.

    Cold: about 940 CPU seconds, 2.1 GB of memory, 160 MB of downloads. Only one process builds at a time.

    Raises:
        ClusterError: Go is not installed, or a build failed.
    """
    with _one_builder():
        wanted = missing()
        if wanted:
            _require_go(wanted[0].module)
        for binary in wanted:
            print(f"building {binary.name} ({kubernetes_version()})", flush=True)
            _build(binary)
        return [binary.name for binary in wanted]


def snapshot_crd_files() -> list[Path]:
    """The VolumeSnapshot CRDs as the snapshotter's Go module ships them; empty when Go cannot fetch it."""
    target = folder("snapshotter")
    files = [target / f"snapshot.storage.k8s.io_{name}.yaml" for name in SNAPSHOT_CRDS]
    if all(file.exists() for file in files):
        return files
    try:
        source = Path(_module_folder("snapshotter", SNAPSHOTTER)) / "config" / "crd"
    except ClusterError:
        return []
    target.mkdir(parents=True, exist_ok=True)
    for file in files:
        shutil.copyfile(source / file.name, file)
    return files


def _build(binary: Binary) -> None:
    output = path(binary)
    output.parent.mkdir(parents=True, exist_ok=True)
    unfinished = output.with_suffix(".unfinished")
    flags = [*FLAGS, "-ldflags", link_flags(binary.module), "-o", str(unfinished)]
    _go(binary.module, ["build", *flags, binary.package])
    unfinished.rename(output)


def _module_folder(module: str, name: str) -> str:
    _go(module, ["mod", "download", name])
    return _go(module, ["list", "-mod=readonly", "-m", "-f", "{{.Dir}}", name]).strip()


def _go(module: str, arguments: Sequence[str]) -> str:
    _require_go(module)
    command = ["nice", "-n", "10", "go", *arguments]
    done = subprocess.run(command, cwd=GO_MODULES / module, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        last = (done.stderr.strip().splitlines() or ["no message"])[-1]
        raise ClusterError(f"go {arguments[0]} in infra/testbed/go/{module} failed: {last}")
    return done.stdout


def _require_go(module: str) -> None:
    if shutil.which("go") is None:
        raise ClusterError(
            f"go is not on PATH: install Go {_go_version(module)} or later to build the testbed"
        )


def _go_version(module: str) -> str:
    match = re.search(r"^go (\S+)", (GO_MODULES / module / "go.mod").read_text(), re.MULTILINE)
    return match.group(1) if match else "(see go.mod)"


@contextmanager
def _one_builder() -> Iterator[None]:
    root = settings.cache_dir() / "testbed"
    root.mkdir(parents=True, exist_ok=True)
    with (root / "build.lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
