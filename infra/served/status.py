"""Status objects: how an API server words what it refuses."""

from typing import Any

from infra.cluster.port import Object
from infra.errors import (
    AlreadyExists,
    ClusterError,
    Conflict,
    Forbidden,
    Gone,
    Invalid,
    NotFound,
    Throttled,
    Unavailable,
    Unknown,
)

_BY_ERROR: tuple[tuple[type[ClusterError], int, str], ...] = (
    (NotFound, 404, "NotFound"),
    (AlreadyExists, 409, "AlreadyExists"),
    (Conflict, 409, "Conflict"),
    (Forbidden, 403, "Forbidden"),
    (Invalid, 422, "Invalid"),
    (Throttled, 429, "TooManyRequests"),
    (Gone, 410, "Expired"),
    (Unknown, 504, "Timeout"),
    (Unavailable, 503, "ServiceUnavailable"),
)


class Refused(ClusterError):
    """A request that no store has to look at: its own HTTP code and reason."""

    def __init__(self, code: int, reason: str, message: str) -> None:
        super().__init__(message)
        self.code, self.reason = code, reason


def bad_request(message: str) -> Refused:
    """400."""
    return Refused(400, "BadRequest", message)


def no_such_resource() -> Refused:
    """404 for a path that nothing is served at."""
    return Refused(404, "NotFound", "the server could not find the requested resource")


def not_allowed() -> Refused:
    """405."""
    return Refused(405, "MethodNotAllowed", "the server does not allow this method on the requested resource")


def code_of(error: ClusterError) -> tuple[int, str]:
    """HTTP code and reason of an error."""
    if isinstance(error, Refused):
        return error.code, error.reason
    for kind, code, reason in _BY_ERROR:
        if isinstance(error, kind):
            return code, reason
    return 500, "InternalError"


def failure(error: ClusterError, details: Object | None = None) -> Object:
    """The Status object of an error."""
    code, reason = code_of(error)
    extra: dict[str, Any] = dict(details or {})
    if isinstance(error, Throttled):
        extra["retryAfterSeconds"] = round(error.retry_after_s) or 1
    return _status("Failure", code, message=str(error), reason=reason, details=extra)


def success(details: Object) -> Object:
    """The Status object of what was deleted."""
    return _status("Success", 200, details=details)


def _status(status: str, code: int, **more: Any) -> Object:
    return {"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": status, **more, "code": code}
