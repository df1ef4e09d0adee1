"""Parts of a long proof: what the very same code has done before is not done again."""

import hashlib
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path

import orjson

from infra.settings import cache_dir

ROOT = Path(__file__).parents[2]
PARTS = ("flows", "infra", "tasks", "tests/benchmarks", "tests/integration")
Rows = Sequence[Iterable[str]]


def same_code(*parts: str) -> str:
    """A hash of every Python file that has a part in it; by default what a proof of whole runs rests on."""
    files = sorted(path for part in parts or PARTS for path in (ROOT / part).rglob("*.py"))
    return hashlib.sha256(b"".join(path.read_bytes() for path in files)).hexdigest()[:16]


def kept_rows(proof: str, name: str, make: Callable[[], Rows]) -> Rows:
    """The rows that a part gave, now or before."""
    file = cache_dir() / proof / same_code() / f"{name}.json"
    if file.is_file():
        before: Rows = orjson.loads(file.read_bytes())
        return before
    rows = [list(row) for row in make()]
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(orjson.dumps(rows))
    return rows
