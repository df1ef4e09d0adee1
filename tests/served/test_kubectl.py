"""kubectl against the served cluster: a script of commands, what each prints compared."""

import re
import shutil
import subprocess
from pathlib import Path

import pytest

from infra.testbed import binaries
from tests.served.conftest import Server

BUILT = binaries.path(binaries.KUBECTL)
KUBECTL = str(BUILT) if BUILT.exists() else shutil.which("kubectl")
pytestmark = [
    pytest.mark.api,
    pytest.mark.timeout(600),
    pytest.mark.skipif(KUBECTL is None, reason="no kubectl: `make testbed-build` builds one"),
]
VM = """\
apiVersion: kubevirt.io/v1
kind: VirtualMachine
metadata: {name: demo, namespace: lab}
spec:
  runStrategy: Halted
  dataVolumeTemplates:
    - metadata: {name: demo-root}
      spec: {source: {blank: {}}, storage: {resources: {requests: {storage: 1Gi}}}}
  template:
    metadata: {labels: {kubevirt.io/domain: demo}}
    spec:
      domain:
        memory: {guest: 1Gi}
        devices: {disks: [{name: root, disk: {bus: virtio}}]}
      volumes: [{name: root, dataVolume: {name: demo-root}}]
"""
CONFIG = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: c, namespace: lab}\ndata: {k: v}\n"
RUN = '{"spec":{"runStrategy":"Always"}}'
SCRIPT = Path(__file__).parent / "kubectl.txt"
"""Commands and what they print, as in a session."""
AGE = re.compile(r"\b\d+(s|m(\d+s)?)\b(?!=)")
WHERE = re.compile(r"(?<=deleted) from .* namespace$")
"""Which newer versions say."""
MET = re.compile(r"^.* condition met$", re.MULTILINE)
"""Said of an object that goes while it is waited for; of one that has gone already nothing is."""


def kubectl(server: Server, folder: Path, *arguments: str) -> str:
    """What kubectl prints, on both streams; ages and the width of columns left out."""
    assert KUBECTL is not None
    command = [KUBECTL, f"--kubeconfig={server.kubeconfig}", f"--cache-dir={folder / 'cache'}", *arguments]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, timeout=120, check=False)
    lines = AGE.sub("AGE", done.stdout + done.stderr).splitlines()
    return "\n".join(re.sub(" {2,}", "  ", WHERE.sub("", line.rstrip())) for line in lines)


def test_a_script_of_commands_prints_what_it_prints_on_a_real_cluster(server: Server, tmp_path: Path) -> None:
    (tmp_path / "vm.yaml").write_text(VM)
    (tmp_path / "c.yaml").write_text(CONFIG)
    (tmp_path / "other.yaml").write_text(CONFIG.replace("k: v", "k: theirs"))
    commands = [line[2:] for line in SCRIPT.read_text().splitlines() if line.startswith("$ ")]
    session = ""
    for command in commands:
        said = kubectl(server, tmp_path, *command.split(" ")[1:])
        session += f"$ {command}\n{MET.sub('', said) if '--for=delete' in command else said}\n\n"
    assert len(commands) >= 20
    assert session == SCRIPT.read_text()


def test_describe_shows_events(server: Server, tmp_path: Path) -> None:
    (tmp_path / "vm.yaml").write_text(VM.replace("demo", "told").replace("lab", "default"))
    kubectl(server, tmp_path, "apply", "--server-side", "-f", "vm.yaml")
    kubectl(server, tmp_path, "patch", "vm", "told", "--type=merge", "-p", RUN)
    kubectl(server, tmp_path, "wait", "vm/told", "--for=condition=Ready", "--timeout=20s")
    described = kubectl(server, tmp_path, "describe", "vm", "told")
    assert "Printable Status:  Running" in described
    assert "SuccessfulCreate" in described
    assert "<unknown>" not in described
    kubectl(server, tmp_path, "delete", "vm", "told")


def test_a_watch_prints_changes_as_rows(server: Server, tmp_path: Path) -> None:
    assert KUBECTL is not None
    command = [KUBECTL, f"--kubeconfig={server.kubeconfig}", "get", "cm", "-w", "--no-headers"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=tmp_path) as watching:
        assert watching.stdout is not None
        try:
            kubectl(server, tmp_path, "create", "configmap", "seen", "--from-literal=a=b")
            assert watching.stdout.readline().split()[0] == "seen"
            kubectl(server, tmp_path, "delete", "configmap", "seen")
            assert watching.stdout.readline().split()[0] == "seen"
        finally:
            watching.terminate()
