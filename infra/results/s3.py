"""The object store over S3 (Ceph RGW, AWS and others that honour `If-None-Match: *` on a plain PUT).

A request is sent again only where that can do no harm: reads and deletes; a PUT of the same bytes to the
same key; and a conditional PUT, because every one carries a mark of its writer. What became of a PUT whose
answer never came is then read back from the object itself.
"""

import random
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import datetime
from functools import partial
from pathlib import Path
from typing import Any, TypeVar

from infra.errors import StoreError
from infra.results.folder import store_errors
from infra.results.s3_client import Address, connect, credentials, encryption_headers, parse_address
from infra.results.s3_refusals import FAILURES, Place, code_of, is_away, refusal, status_of
from infra.settings import S3Settings

T = TypeVar("T")

TRIES = 5
FIRST_PAUSE_S = 0.1
WRITER = "virtscale-writer"
_proven: set[tuple[str, S3Settings]] = set()


def open_s3(text: str, settings: S3Settings, *, writable: bool = True) -> "S3Store":
    """Open `s3://bucket/prefix`, and find out now what a run would find out after hours.

    Raises:
        StoreError: it cannot be used: what is wrong, and what to do.
    """
    address = parse_address(text)
    store = S3Store(address, settings)
    store.try_reading()
    if writable and (text, settings) not in _proven:
        store.try_writing()
        _proven.add((text, settings))
    return store


@dataclass(slots=True)
class Traffic:
    """What went over the wire: requests by operation, bytes of bodies, requests that had to be sent again."""

    requests: Counter[str]
    sent_bytes: int = 0
    received_bytes: int = 0
    resent: int = 0


class S3Store:
    """An `infra.results.port.ObjectStore` whose keys are objects below a prefix of a bucket."""

    parallel = 8
    page_keys = 1000

    def __init__(self, address: Address, settings: S3Settings) -> None:
        self.bucket, self.prefix = address
        self.traffic = Traffic(Counter())
        self.settings = settings
        self._client = connect(settings)
        self._place = Place(str(address), address.bucket, self._client.meta.endpoint_url)
        self._put_headers, self._get_headers = encryption_headers(settings)
        self._counting = threading.Lock()
        self._in_a_hurry = threading.Event()

    @property
    def endpoint(self) -> str:
        """Where requests go."""
        return self._place.endpoint

    @property
    def region(self) -> str:
        """The region that requests are signed for."""
        return str(self._client.meta.region_name)

    def hurry(self, now: bool) -> None:
        """Whether requests that fail are to be given up at once: somebody waits for this process to end."""
        (self._in_a_hurry.set if now else self._in_a_hurry.clear)()

    def put(self, key: str, body: bytes) -> None:
        """Write whole, replacing an older one.

        Raises:
            StoreAway: no answer, or none that decides it; it may have been written all the same.
        """
        self._sent(lambda: self._put(key, body, {}), "PUT")

    def put_new(self, key: str, body: bytes, writer: str = "") -> bool:
        """Write only if the key is free, by a condition on the PUT; False when another writer was first.

        `writer` marks the object: a caller that asks again after its own death gives the same mark.

        Raises:
            StoreAway: it is not known whether it was written.
        """
        mark = writer or secrets.token_hex(8)

        def attempt() -> bool:
            try:
                self._put(key, body, {"IfNoneMatch": "*", "Metadata": {WRITER: mark}})
                return True
            except FAILURES as error:
                if status_of(error) == 409:
                    # Two conditional writes met: neither is decided yet.
                    raise _Undecided from error
                if status_of(error) != 412:
                    raise
            # Taken: by another, or by a try of ours whose answer was lost.
            found = self._writer(key)
            if found is None:
                raise _Undecided
            return found == mark

        return self._sent(attempt, "PUT")

    def get(self, key: str) -> bytes | None:
        """The object's bytes; None when there is none."""

        def attempt() -> bytes | None:
            try:
                answer = self._client.get_object(Bucket=self.bucket, Key=self._name(key), **self._get_headers)
                body: bytes = answer["Body"].read()
            except FAILURES as error:
                if code_of(error) in {"NoSuchKey", "404"}:
                    return None
                raise
            self._count("GET", received=len(body))
            return body

        return self._sent(attempt, "GET")

    def keys(self, prefix: str) -> list[str]:
        """All keys that start with `prefix`, sorted, however many; names with a leading dot are left out."""
        return sorted(key for _, key in self._listed(prefix))

    def written(self, prefix: str) -> list[tuple[datetime, str]]:
        """All keys that start with `prefix`, each with when it was written last, oldest first."""
        return sorted(self._listed(prefix))

    def delete(self, key: str) -> None:
        """Remove the object; no error when it is gone already."""
        self._sent(lambda: self._client.delete_object(Bucket=self.bucket, Key=self._name(key)), "DELETE")
        self._count("DELETE")

    def release(self, key: str, path: Path) -> None:
        """Remove the file now: the store has answered."""
        with store_errors(path, "written"):
            path.unlink(missing_ok=True)

    def address(self, key: str) -> str:
        """The object's `s3://` address."""
        return f"s3://{self.bucket}/{self.prefix}{key}"

    def scan_options(self) -> dict[str, str]:
        """Endpoint, region and the credentials of this moment.

        Raises:
            StoreError: there are no credentials.
        """
        return {**credentials(self.settings), "aws_endpoint_url": self.endpoint, "aws_region": self.region}

    def try_reading(self) -> None:
        """List one key: bucket, endpoint, region, credentials, clock and certificate are right.

        Raises:
            StoreError: one of them is not.
        """
        self._sent(lambda: self._page("", {"MaxKeys": 1}), "LIST")

    def try_writing(self) -> None:
        """Write, refuse to write, read and remove one object: a store that overwrites would lose commits.

        Raises:
            StoreError: the store refuses one of these, or ignores conditions.
        """
        key, first = f".try-{secrets.token_hex(8)}", secrets.token_bytes(8)
        outcomes = [self.put_new(key, body) for body in (first, b"second")]
        body = self.get(key)
        self.delete(key)
        if outcomes != [True, False] or body != first:
            raise StoreError(
                f"store {self._place.address}: {self.endpoint} ignores `If-None-Match: *` on PUT, "
                "so two writers would overwrite each other; "
                "use a store that honours it (Ceph RGW 16 or later, AWS), or a folder"
            )

    def _listed(self, prefix: str) -> Iterator[tuple[datetime, str]]:
        token: dict[str, str] = {}
        while True:
            page = self._sent(partial(self._page, prefix, token), "LIST")
            for item in page.get("Contents", []):
                key = item["Key"].removeprefix(self.prefix)
                if not _is_hidden(key):
                    yield item["LastModified"], key
            if not page.get("IsTruncated"):
                return
            token = {"ContinuationToken": page["NextContinuationToken"]}

    def _page(self, prefix: str, token: dict[str, Any]) -> dict[str, Any]:
        self._count("LIST")
        name = self.prefix + prefix
        asked = {"MaxKeys": self.page_keys, **token}
        page: dict[str, Any] = self._client.list_objects_v2(Bucket=self.bucket, Prefix=name, **asked)
        return page

    def _put(self, key: str, body: bytes, condition: dict[str, Any]) -> None:
        name = self._name(key)
        self._client.put_object(Bucket=self.bucket, Key=name, Body=body, **condition, **self._put_headers)
        self._count("PUT", sent=len(body))

    def _writer(self, key: str) -> str | None:
        """The mark of whoever wrote an object; None when there is none (any more)."""
        self._count("HEAD")
        try:
            found = self._client.head_object(Bucket=self.bucket, Key=self._name(key), **self._get_headers)
        except FAILURES as error:
            if status_of(error) == 404:
                return None
            raise
        return str(found["Metadata"].get(WRITER, ""))

    def _name(self, key: str) -> str:
        if key.startswith("/") or ".." in key.split("/"):
            raise ValueError(f"{key!r} leads out of the store")
        return self.prefix + key

    def _count(self, operation: str, sent: int = 0, received: int = 0) -> None:
        with self._counting:
            self.traffic.requests[operation] += 1
            self.traffic.sent_bytes += sent
            self.traffic.received_bytes += received

    def _sent(self, request: Callable[[], T], operation: str) -> T:
        """The answer of a request that may be sent again while the store is away."""
        for again in range(1, TRIES + 1):
            try:
                return request()
            except _Undecided as error:
                if again == TRIES:
                    raise StoreError(
                        f"store {self._place.address}: {operation} was decided neither way in {TRIES} tries"
                    ) from error
            except FAILURES as error:
                if again == TRIES or self._in_a_hurry.is_set() or not is_away(error):
                    raise refusal(error, self._place) from error
            self.traffic.resent += 1
            self._in_a_hurry.wait(random.uniform(0, FIRST_PAUSE_S * 2**again))
        raise AssertionError("unreachable")


class _Undecided(Exception):
    """A conditional write that lost to nobody."""


def _is_hidden(key: str) -> bool:
    return key.endswith("/") or any(part.startswith(".") for part in key.split("/"))
