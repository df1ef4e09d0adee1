"""From an API server's refusal, or from its silence, to the error that says what the caller can do."""

from typing import Any

import aiohttp
import orjson

from infra.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Denied,
    Expired,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Throttled,
    Unavailable,
    Unknown,
)

NOT_SENT = (aiohttp.ClientConnectorError, aiohttp.ConnectionTimeoutError, aiohttp.ClientProxyConnectionError)
NO_ANSWER = (aiohttp.ClientError, TimeoutError, OSError)
READ_ONLY = ("GET", "HEAD")
# A gateway's 502 and 504, and etcd's time-outs (500), come after the request was passed on.
OUTCOME_UNKNOWN = (502, 504)
DEFAULT_RETRY_AFTER_S = 1.0
# Server-side apply answers 500 to a field that the schema does not have, or of another type.
NOT_OF_THE_SCHEMA = "failed to create typed patch object"

# How the API server words that a role is missing; any other 403 is admission's, about the object.
NOT_ALLOWED = 'User "'

BY_STATUS: dict[int, type[ClusterError]] = {
    401: Expired,
    403: Forbidden,
    404: NotFound,
    409: Conflict,
    410: Gone,
}


def refusal(
    status: int, body: bytes, what: str, *, retry_after: str = "", is_read: bool = False
) -> ClusterError:
    """The error for an answer with an HTTP `status` of 400 or more.

    Args:
        status: The HTTP status, or the code of a Status object that came as a watch event.
        body: The answer's body, a Status object as a rule.
        what: The request in words, for the message.
        retry_after: The Retry-After header, seconds.
        is_read: Nothing can have changed, so the outcome cannot be unknown.
    """
    answer = _status_object(body)
    message = f"{what}: {status} {answer.get('message') or _text(body)}"
    if status == 429:
        return Throttled(message, _seconds(retry_after))
    if status == 409 and answer.get("reason") == "AlreadyExists":
        return AlreadyExists(message)
    if status == 403 and NOT_ALLOWED not in message and not is_read:
        return Denied(message)
    if status >= 500 and NOT_OF_THE_SCHEMA not in message:
        is_lost = status in OUTCOME_UNKNOWN or "etcdserver: request timed out" in message
        return Unknown(message) if is_lost and not is_read else Unavailable(message)
    return BY_STATUS.get(status, Invalid)(message)


def silence(error: Exception, method: str, what: str) -> ClusterError:
    """The error for a request without an answer: not sent, harmless to repeat, or of unknown outcome."""
    reason = " ".join(str(error).split()) or type(error).__name__
    message = f"{what}: no answer: {reason}"
    if isinstance(error, NOT_SENT) or method in READ_ONLY:
        return Unavailable(message)
    return Unknown(f"{message}; it may or may not have been carried out")


def _status_object(body: bytes) -> dict[str, Any]:
    try:
        answer = orjson.loads(body)
    except orjson.JSONDecodeError:
        return {}
    return answer if isinstance(answer, dict) else {}


def _text(body: bytes) -> str:
    return " ".join(body[:300].decode(errors="replace").split())


def _seconds(retry_after: str) -> float:
    # The header may also be a date; API servers send seconds.
    return float(retry_after) if retry_after.isdigit() else DEFAULT_RETRY_AFTER_S
