"""A real Alertmanager, where there is one, that repeats itself every second."""

import json
import re
import shutil
import subprocess
import time
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

ALERTMANAGER = shutil.which("prometheus-alertmanager") or shutil.which("alertmanager") or ""
BEGAN, ENDED = "2025-12-01T04:00:00.123456789Z", "2025-12-01T05:00:00Z"


@contextmanager
def alerting(folder: Path, config: str, port: int) -> Iterator[int]:
    """The port of an Alertmanager with the configuration, but without its waits."""
    config = re.sub(r"(group_wait|group_interval|repeat_interval): \w+", r"\1: 1s", config)
    config = config.replace("send_resolved: false", "send_resolved: true")
    (folder / "alertmanager.yml").write_text(config)
    command = [
        ALERTMANAGER,
        f"--config.file={folder}/alertmanager.yml",
        f"--storage.path={folder}",
        f"--web.listen-address=127.0.0.1:{port}",
        "--cluster.listen-address=",
    ]
    with (folder / "log").open("wb") as log, subprocess.Popen(command, stdout=log, stderr=log) as process:
        try:
            deadline = time.monotonic() + 30
            while not is_ready(port):
                assert process.poll() is None, (folder / "log").read_text()
                assert time.monotonic() < deadline, (folder / "log").read_text()
                time.sleep(0.2)
            yield port
        finally:
            process.terminate()


def is_ready(port: int) -> bool:
    try:
        urllib.request.urlopen(f"http://127.0.0.1:{port}/-/ready", timeout=10).close()
    except OSError:
        return False
    return True


def alert(port: int, ended: bool = False) -> None:
    """The alert of the guide fires, or ends."""
    labels = {"alertname": "KubeVirtUpgraded", "virtscale": "study"}
    ends = {"endsAt": ENDED} if ended else {}
    content = json.dumps([{"labels": labels, "startsAt": BEGAN, **ends}]).encode()
    url = f"http://127.0.0.1:{port}/api/v2/alerts"
    request = urllib.request.Request(url, content, {"content-type": "application/json"}, method="POST")
    urllib.request.urlopen(request, timeout=10).close()
