"""The exception tree: what went wrong, on which object, what to do next.

    VirtscaleError
      ProfileError            the profile or an option is wrong (exit 2)
      NotComparable           two runs that may not be compared, or not yet (exit 2)
      InvalidRun              preflight found that the run could not be valid (exit 2)
      StageError              a stage could not finish (exit 1)
      StoreError              the result store is away or refuses (exit 2 before a run, 1 within)
        InUse                 another process is at work on the same run
        StoreAway             the store does not answer now; it may later
        StateLost             a virtual cluster cannot be found again: its run cannot go on (exit 2)
      GuestError              a guest could not be reached or used
        ToolOutputError       what a guest's tool wrote is not to be trusted, and where
      ClusterError            the cluster's answer, by what the caller can do about it
        Unreachable           no such context, or no answer from the API server at all
        NotFound              404
        AlreadyExists         409 on create
        Conflict              409 on anything else
        Forbidden             403: the caller may not do that
          Expired             401: who the caller is, is not believed (any more)
        Invalid               400, 422: the object itself is refused
          Denied              403 by admission: quota, LimitRange, PodSecurity, a webhook
        Throttled             429: try again after `retry_after_s`
        Gone                  410: the resource version is too old, list again
        Unavailable           5xx: the request was not carried out, it may be sent again
        Unknown               the outcome is not known (time-out, reset after send): read back

Messages are one line. Causes are chained with `from`.
"""


class VirtscaleError(Exception):
    """Root of every error that a user may see; its text is one line of what, where, what to do."""

    exit_code = 1


class ProfileError(VirtscaleError):
    """The profile, an option or a file of the user's is wrong."""

    exit_code = 2


class InvalidRun(VirtscaleError):
    """Preflight: the run could not be valid on this cluster."""

    exit_code = 2


class NotComparable(VirtscaleError):
    """Two runs differ in what has to be equal, or one of them has nothing to compare."""

    exit_code = 2


class StageError(VirtscaleError):
    """A stage could not finish; what it measured so far is kept."""


class StoreError(VirtscaleError):
    """The result store cannot be read or written."""

    exit_code = 2


class InUse(StoreError):
    """Another process is at work on the same run: its objects are not to be touched."""


class StoreAway(StoreError):
    """The store does not answer, or answers that it cannot now: nothing of ours is wrong."""


class StateLost(StoreError):
    """The saved state of a virtual cluster is gone or damaged: nothing is left to go on with, or to clean."""


class GuestError(VirtscaleError):
    """A guest could not be reached or did not do what it was asked."""


class ToolOutputError(GuestError):
    """What a tool wrote cannot be read, or contradicts itself: nothing of it may be used."""

    def __init__(self, tool: str, position: str, problem: str) -> None:
        """Say which tool's output, where in it (a line, or a path within its document) and what is wrong."""
        super().__init__(f"{tool} output, {position}: {problem}")
        self.tool, self.position, self.problem = tool, position, problem


class ClusterError(VirtscaleError):
    """The cluster did not do what was asked."""


class Unreachable(ClusterError):
    """There is no such context, or its API server does not answer."""

    exit_code = 2


class NotFound(ClusterError):
    """The object does not exist."""


class AlreadyExists(ClusterError):
    """An object of that name exists already."""


class Conflict(ClusterError):
    """The object is not in a state (or version, or ownership) that allows the request."""


class Forbidden(ClusterError):
    """The caller may not do that."""


class Expired(Forbidden):
    """The API server does not believe who we are: a token ran out, and no new one was to be had yet."""


class Invalid(ClusterError):
    """The API server refuses the object or the request itself."""


class Denied(Invalid):
    """Admission refuses the object: quota, LimitRange, PodSecurity, a policy or webhook of the cluster."""


class Throttled(ClusterError):
    """Too many requests; nothing was done."""

    def __init__(self, message: str, retry_after_s: float = 1.0) -> None:
        """Keep the server's own waiting time beside the text."""
        super().__init__(message)
        self.retry_after_s = retry_after_s


class Gone(ClusterError):
    """The watch's resource version is no longer kept: list again."""


class Unavailable(ClusterError):
    """A 5xx answer: not carried out, may be sent again."""


class Unknown(ClusterError):
    """No answer, and it is not known whether the request was carried out."""
