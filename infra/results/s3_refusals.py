"""What an S3 store, or the way to it, answers: one line of what is wrong and what to do about it."""

from typing import NamedTuple, TypeAlias

from botocore.exceptions import (
    BotoCoreError,
    ClientError,
    CredentialRetrievalError,
    HTTPClientError,
    IncompleteReadError,
    NoCredentialsError,
    PartialCredentialsError,
    ProfileNotFound,
    SSLError,
    SSOError,
    TokenRetrievalError,
)
from botocore.exceptions import (
    ConnectionError as NoConnection,
)
from botocore.parsers import ResponseParserError

from infra.errors import StoreAway, StoreError

Failure: TypeAlias = BotoCoreError | ClientError | ResponseParserError
FAILURES = (BotoCoreError, ClientError, ResponseParserError)
"""Everything that a request may raise."""

_NO_CREDENTIALS = (
    NoCredentialsError,
    PartialCredentialsError,
    CredentialRetrievalError,
    ProfileNotFound,
    SSOError,
    TokenRetrievalError,
)
_WAYS_IN = "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, AWS_PROFILE, or a role"
_ENDPOINT = "VIRTSCALE_S3_ENDPOINT (or AWS_ENDPOINT_URL)"
_REGION = "VIRTSCALE_S3_REGION (or AWS_REGION)"

_EXPIRED = f"these credentials have expired; get new ones ({_WAYS_IN}) and go on with the same --run-id"
_WRONG_REGION = f"the bucket is in another region; name it in {_REGION}"
_ANSWERS = {
    "NoSuchBucket": "there is no bucket {bucket} at {endpoint}; make it, or name another",
    "NoSuchKey": "{endpoint} does not answer as S3 does; correct " + _ENDPOINT,
    "InvalidBucketName": "{bucket} is no name of a bucket; use lower-case letters, digits, dots, dashes",
    "AccessDenied": "access denied; these credentials need {needs} on bucket {bucket}",
    "SignatureDoesNotMatch": "the secret key is not that of this access key; correct AWS_SECRET_ACCESS_KEY",
    "InvalidAccessKeyId": "{endpoint} does not know this access key; correct AWS_ACCESS_KEY_ID or "
    + _ENDPOINT,
    "RequestTimeTooSkewed": "this machine's clock differs from the store's by too much; set it right (NTP)",
    "ExpiredToken": _EXPIRED,
    "ExpiredTokenException": _EXPIRED,
    "TokenRefreshRequired": _EXPIRED,
    "InvalidToken": "AWS_SESSION_TOKEN does not belong to these credentials; unset it or get new ones",
    "PermanentRedirect": _WRONG_REGION,
    "TemporaryRedirect": _WRONG_REGION,
    "AuthorizationHeaderMalformed": _WRONG_REGION,
    "IllegalLocationConstraintException": _WRONG_REGION,
    "MethodNotAllowed": "{endpoint} is no S3 store; correct " + _ENDPOINT,
    "QuotaExceeded": "the quota of the bucket or of its user is used up; raise it or delete runs",
    "InvalidStorageClass": "the store refuses the storage class; ask its administrator",
    "NotImplemented": "the store does not know this request; use one that supports S3",
    "InvalidRequest": "the store refuses the request ({message}); check VIRTSCALE_S3_ENCRYPTION",
    "InvalidEncryptionAlgorithmError": "use AES256 or aws:kms:KEY-ID in VIRTSCALE_S3_ENCRYPTION",
}
_SAME = {
    "403": "AccessDenied",
    "Forbidden": "AccessDenied",
    "AllAccessDisabled": "AccessDenied",
    "404": "NoSuchKey",
    "301": "PermanentRedirect",
    "400": "InvalidRequest",
    "405": "MethodNotAllowed",
    "501": "NotImplemented",
    "RequestExpired": "RequestTimeTooSkewed",
}
_LATER = {
    "SlowDown",
    "ServiceUnavailable",
    "InternalError",
    "RequestTimeout",
    "UnknownError",
    "OperationAborted",
}


class Place(NamedTuple):
    """Where a request went, for the words about it. `needs` are the rights that it takes."""

    address: str
    bucket: str
    endpoint: str
    needs: str = "s3:ListBucket, s3:GetObject, s3:PutObject, s3:DeleteObject"


def code_of(error: Failure) -> str:
    """The code that the store answered, or the HTTP status as text; empty without an answer."""
    if not isinstance(error, ClientError):
        return ""
    code = str(error.response.get("Error", {}).get("Code", ""))
    return _SAME.get(code, code)


def status_of(error: Failure) -> int:
    """The HTTP status that the store answered; 0 without an answer."""
    if not isinstance(error, ClientError):
        return 0
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def is_away(error: Failure) -> bool:
    """Whether the same request may go well later, with nothing changed on our side."""
    if isinstance(error, ClientError):
        return (status_of(error) >= 500 and code_of(error) != "NotImplemented") or code_of(error) in _LATER
    broken = isinstance(error, HTTPClientError | NoConnection | IncompleteReadError)
    return broken and not isinstance(error, SSLError)


def refusal(error: Failure, place: Place) -> StoreError:
    """The error for a person: `StoreAway` when waiting may help."""
    where = f"store {place.address}"
    if is_away(error):
        return StoreAway(
            f"{where}: {place.endpoint} {_kind_of_silence(error)}; start it, or correct {_ENDPOINT}"
        )
    return StoreError(f"{where}: {_reason(error, place)}")


def _kind_of_silence(error: Failure) -> str:
    if isinstance(error, ClientError):
        return f"answers {status_of(error)} {code_of(error)}".rstrip()
    name = type(error).__name__
    if "Timeout" in name:
        return "does not answer in time"
    return "cannot be reached" if "Connect" in name else "breaks off its answers"


def _reason(error: Failure, place: Place) -> str:
    if isinstance(error, _NO_CREDENTIALS):
        return f"no usable credentials ({_one_line(error)}); set {_WAYS_IN}"
    if isinstance(error, SSLError):
        return (
            f"the certificate of {place.endpoint} cannot be verified ({_certificate(error)}); "
            "name its CA in VIRTSCALE_S3_CA_BUNDLE"
        )
    if isinstance(error, ResponseParserError):
        return f"{place.endpoint} does not answer as S3 does; correct {_ENDPOINT}"
    if isinstance(error, ClientError):
        return _answered(error, place)
    return f"{_one_line(error)}; check {_ENDPOINT}, the region and the credentials"


def _answered(error: ClientError, place: Place) -> str:
    code = code_of(error)
    message = _one_line(error.response.get("Error", {}).get("Message") or f"status {status_of(error)}")
    known = _ANSWERS.get(code)
    if known is None:
        return f"{place.endpoint} refuses: {code} {message}"
    return known.format(bucket=place.bucket, endpoint=place.endpoint, needs=place.needs, message=message)


def _certificate(error: SSLError) -> str:
    text = _one_line(error)
    return (
        text.rpartition("certificate verify failed: ")[2].partition(" (_ssl")[0] if "verify" in text else text
    )


def _one_line(text: object) -> str:
    return " ".join(str(text).split()).rstrip(".")
