"""From `s3://bucket/prefix` and the settings to a client: path style, no retries of its own, checksums plain.

Credentials come from boto3's own chain (environment, shared files, container, web identity) and stay in it.
"""

import re
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

import boto3
from botocore.config import Config
from botocore.exceptions import NoCredentialsError

from infra.errors import StoreError
from infra.results.s3_refusals import FAILURES, Place, refusal
from infra.settings import S3Settings

CONNECTIONS = 8
KEY_BYTES = 1024
"""S3's own limit on the UTF-8 of a key, prefix included."""
LONGEST_PREFIX_BYTES = KEY_BYTES - 256
"""What a run appends, run id and slash included, is shorter than the rest."""
_BUCKET = re.compile(r"[a-z0-9](?:[a-z0-9.-]{1,61}[a-z0-9])")
_DEFAULT_REGION = "us-east-1"


class Address(NamedTuple):
    """A bucket and what every key of ours starts with: empty, or ending in a slash."""

    bucket: str
    prefix: str

    def __str__(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}".rstrip("/")


def parse_address(text: str) -> Address:
    """The bucket and prefix of `s3://bucket/prefix`.

    Raises:
        StoreError: it is none; the text says what to write.
    """
    bucket, _, prefix = text.partition("://")[2].partition("/")
    if "@" in bucket:
        raise StoreError(
            "store s3://: credentials are no part of an address; set AWS_ACCESS_KEY_ID and the like"
        )
    where = f"store {text}"
    if not bucket:
        raise StoreError(f"{where}: no bucket is named; write s3://BUCKET or s3://BUCKET/PREFIX")
    if bucket != bucket.lower() and _BUCKET.fullmatch(bucket.lower()):
        raise StoreError(f"{where}: names of buckets are lower-case; did you mean s3://{bucket.lower()}?")
    if not _BUCKET.fullmatch(bucket):
        raise StoreError(
            f"{where}: {bucket} is no name of a bucket; use lower-case letters, digits, dots, dashes"
        )
    parts = prefix.strip("/").split("/") if prefix.strip("/") else []
    if any(part in {"", ".", ".."} for part in parts):
        raise StoreError(f"{where}: a prefix has no empty part, no . and no ..; write s3://{bucket}/a/b")
    if any(not part.isprintable() or set(part) & set("?#*[]{}\\") for part in parts):
        raise StoreError(f"{where}: a prefix is made of plain characters, without ? # * [ ] {{ }} and \\")
    if (length := len(prefix.strip("/").encode())) > LONGEST_PREFIX_BYTES:
        raise StoreError(
            f"store s3://{bucket}: the prefix has {length} bytes, so that keys would be longer than S3 "
            f"allows; give one of {LONGEST_PREFIX_BYTES} at most"
        )
    return Address(bucket, "".join(f"{part}/" for part in parts))


@lru_cache(maxsize=8)
def connect(settings: S3Settings) -> Any:
    """A client for these settings; made once, as it takes a tenth of a second.

    Raises:
        StoreError: the configuration of boto3, or the endpoint, cannot be used.
    """
    _check_no_secret(settings.endpoint, "VIRTSCALE_S3_ENDPOINT")
    place = Place("s3://", "", settings.endpoint or "the configured endpoint")
    if settings.ca_bundle and not Path(settings.ca_bundle).is_file():
        raise StoreError(f"VIRTSCALE_S3_CA_BUNDLE={settings.ca_bundle}: there is no such file; correct it")
    try:
        session = _session(settings)
        client = session.client(
            "s3",
            endpoint_url=settings.endpoint or None,
            region_name=settings.region or session.region_name or _DEFAULT_REGION,
            verify=settings.ca_bundle or None,
            config=_config(settings),
        )
        _check_no_secret(client.meta.endpoint_url, "AWS_ENDPOINT_URL")
        client.meta.events.register("before-call.s3", _stay_in_region)
        return client
    except FAILURES as error:
        raise refusal(error, place) from error
    except ValueError as error:
        _check_no_secret(str(error), "AWS_ENDPOINT_URL")
        raise StoreError(
            f"{error}; write http://HOST:PORT or https://HOST in VIRTSCALE_S3_ENDPOINT"
        ) from error


def _check_no_secret(endpoint: str, name: str) -> None:
    if "@" in endpoint:
        raise StoreError(
            f"{name}: credentials are no part of an endpoint; "
            "write http://HOST:PORT or https://HOST, and set AWS_ACCESS_KEY_ID and the like"
        ) from None


def _stay_in_region(context: dict[str, Any], **_: Any) -> None:
    """Botocore follows redirects for ever where a server redirects everything."""
    context.setdefault("s3_redirect", {})["redirected"] = True


def credentials(settings: S3Settings) -> dict[str, str]:
    """The credentials of this moment under the names that polars knows.

    Raises:
        StoreError: there are none.
    """
    place = Place("s3://", "", settings.endpoint)
    try:
        found = _session(settings).get_credentials()
        if found is None:
            raise NoCredentialsError
        frozen = found.get_frozen_credentials()
    except FAILURES as error:
        raise refusal(error, place) from error
    pairs = {"aws_access_key_id": frozen.access_key, "aws_secret_access_key": frozen.secret_key}
    return pairs | ({"aws_session_token": frozen.token} if frozen.token else {})


@lru_cache(maxsize=8)
def _session(settings: S3Settings) -> Any:
    del settings  # one for each state of the environment
    return boto3.session.Session()


def _config(settings: S3Settings) -> Config:
    return Config(
        signature_version="s3v4",
        s3={"addressing_style": "path"},
        # Other checksums are sent as a trailer over https, which older Ceph refuses (411).
        request_checksum_calculation="when_required",
        response_checksum_validation="when_required",
        # Sent again only where we know what that means.
        retries={"total_max_attempts": 1, "mode": "standard"},
        connect_timeout=min(5, settings.timeout_s),
        read_timeout=settings.timeout_s,
        max_pool_connections=CONNECTIONS,
        tcp_keepalive=True,
    )


def encryption_headers(settings: S3Settings) -> tuple[dict[str, Any], dict[str, Any]]:
    """What every PUT, and what every GET and HEAD carries besides.

    Raises:
        StoreError: the setting or the key file cannot be used.
    """
    if settings.customer_key_file:
        key: dict[str, Any] = {"SSECustomerAlgorithm": "AES256", "SSECustomerKey": _customer_key(settings)}
        return key, key
    algorithm, _, key_id = settings.encryption.partition("aws:kms:")
    if key_id:
        return {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": key_id}, {}
    if algorithm not in {"", "AES256", "aws:kms"}:
        raise StoreError(f"VIRTSCALE_S3_ENCRYPTION={algorithm}: give AES256, aws:kms or aws:kms:KEY-ID")
    return ({"ServerSideEncryption": algorithm} if algorithm else {}), {}


def _customer_key(settings: S3Settings) -> bytes:
    path = settings.customer_key_file
    try:
        key = Path(path).read_bytes()
    except OSError as error:
        raise StoreError(
            f"VIRTSCALE_S3_CUSTOMER_KEY_FILE={path}: cannot be read ({error.strerror}); correct it"
        ) from error
    if len(key) != 32:
        raise StoreError(f"VIRTSCALE_S3_CUSTOMER_KEY_FILE={path}: has {len(key)} bytes; a key has 32")
    return key
