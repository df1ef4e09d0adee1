"""How long an accepted request takes, seen by its sender; Prefect is on this machine."""

import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

from infra import postgres, prefect_server
from tests.integration.hostile import SECRET, signed
from tests.integration.test_webhook import RULES, post, serving

REQUESTS = 300
WARM_UP = 20
RATE_PER_S = 5.0
MOST_P99_S = 0.3


def main(folder: Path) -> int:
    """Send them one by one at an even pace; 1 when the slowest percent takes too long."""
    os.environ["VIRTSCALE_STATE"] = str(folder / "state")
    os.environ.pop("PREFECT_API_URL", None)
    own = postgres.find()
    if own is not None:
        postgres.up(own)
    server = prefect_server.ensure_server(own.url if own else "")
    try:
        environment = {**os.environ, **prefect_server.client_environment(server)}
        environment["VIRTSCALE_WEBHOOK_SECRET"] = SECRET
        apply = [sys.executable, "-m", "flows", "prefect", "apply", "--store", str(folder / "store")]
        subprocess.run(apply, env=environment, check=True, capture_output=True)
        rules = folder / "rules.toml"
        rules.write_text(RULES)
        # No worker, so no process starts: runs stay scheduled, and Prefect marks each as late after 15 s.
        with serving(folder, rules, environment) as (_, port):
            load = [os.getloadavg()[0]]
            took_s = [accepted(port, number) for number in range(WARM_UP + REQUESTS)][WARM_UP:]
            load.append(os.getloadavg()[0])
    finally:
        prefect_server.stop_server()
        if own is not None:
            postgres.wipe(own)
    p50, p99 = np.percentile(took_s, [50, 99])
    print(f"{REQUESTS} accepted requests at {RATE_PER_S:g}/s on {server.database}, "
          f"load {load[0]:.1f} to {load[1]:.1f}: "
          f"p50 {1000 * p50:.0f} ms, p99 {1000 * p99:.0f} ms, max {1000 * max(took_s):.0f} ms; "
          f"p99 at most {1000 * MOST_P99_S:.0f} ms: {'yes' if p99 <= MOST_P99_S else 'NO'}")  # fmt: skip
    return int(p99 > MOST_P99_S)


def accepted(port: int, number: int) -> float:
    """Seconds until the answer 202."""
    body = json.dumps({"parameters": {"profile": "smoke", "seed": number}}).encode()
    began_s = time.monotonic()
    status, answer = post(port, body, signed(body, f"bench-{number}"))
    took_s = time.monotonic() - began_s
    assert status == 202, answer
    time.sleep(max(0.0, 1 / RATE_PER_S - took_s))
    return took_s


if __name__ == "__main__":
    with tempfile.TemporaryDirectory(prefix="bench-webhook-") as made:
        sys.exit(main(Path(made)))
