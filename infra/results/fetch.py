"""Many objects at once, where each waits for a store's answer."""

from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor

from infra.results.port import ObjectStore


def fetch(store: ObjectStore, keys: Sequence[str]) -> Iterator[tuple[str, bytes | None]]:
    """Each key with its bytes, None where there is none, in the order of `keys`."""
    if store.parallel == 1 or len(keys) < 2:
        yield from ((key, store.get(key)) for key in keys)
        return
    with ThreadPoolExecutor(min(store.parallel, len(keys)), thread_name_prefix="fetch") as pool:
        yield from zip(keys, pool.map(store.get, keys), strict=True)
