"""What the receiver says of its requests: one JSON line each, and counters. No secret, no body."""

import json
import logging
from dataclasses import dataclass
from datetime import UTC, datetime

from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, Counter, Histogram, generate_latest

log = logging.getLogger("virtscale.webhook")

_REGISTRY = CollectorRegistry()
_REQUESTS = Counter(
    "virtscale_webhook_requests", "Requests by answer", ["status", "form"], registry=_REGISTRY
)
_SECONDS = Histogram("virtscale_webhook_seconds", "Time to answer", ["status"], registry=_REGISTRY)


@dataclass(slots=True)
class Told:
    """What is known of a request so far."""

    hook: str
    address: str
    form: str = ""
    delivery: str = ""
    run_id: str = ""
    reason: str = ""


def tell(told: Told, status: int, elapsed_s: float) -> None:
    """Count the request and write its line; text of a sender is escaped and cut."""
    _REQUESTS.labels(str(status), told.form).inc()
    _SECONDS.labels(str(status)).observe(elapsed_s)
    line = {
        "at": datetime.now(UTC).isoformat(timespec="milliseconds"),
        "event": "delivery",
        "hook": told.hook[:63],
        "from": told.address,
        "status": status,
        "elapsed_ms": round(1000 * elapsed_s, 1),
        "form": told.form,
        "delivery": told.delivery[:128],
        "run_id": told.run_id,
        "reason": told.reason[:500],
    }
    log.info(json.dumps({name: value for name, value in line.items() if value != ""}))


def metrics_page() -> tuple[bytes, str]:
    """The counters, and their media type."""
    return generate_latest(_REGISTRY), CONTENT_TYPE_LATEST
