"""PURE. Whether a file is what the tool wrote: its digest, taken in the guest when the tool had ended.

The parsers' own checks find damage in every figure that a tool writes twice. What it writes once (the
count of one bin in the tail, a maximum) only a digest protects on its way out of the guest.
"""

from hashlib import sha256

from infra.errors import ToolOutputError


def digest(data: bytes) -> str:
    """SHA-256 as hexadecimal text, as `sha256sum` prints it."""
    return sha256(data).hexdigest()


def intact(tool: str, data: bytes, expected_sha256: str) -> bytes:
    """The data, when it has the digest that was taken in the guest; ToolOutputError otherwise."""
    found = digest(data)
    if found != expected_sha256.strip().lower():
        where = f"bytes 0 to {len(data)}"
        raise ToolOutputError(
            tool, where, f"damaged on its way: sha256 {found[:16]}..., not {expected_sha256[:16]}..."
        )
    return data
