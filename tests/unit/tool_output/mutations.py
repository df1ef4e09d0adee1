"""Damage to a file, drawn by a seed: bits, bytes, digits, numbers, lines, pieces, hostile insertions."""

import re
from collections.abc import Callable
from random import Random

NUMBER = re.compile(rb"-?\d+(?:\.\d+)?")
DIGIT = re.compile(rb"\d")
HOSTILE = [
    b"",
    b"{",
    b"}",
    b"[" * 5_000,
    b'{"a":' * 5_000,
    b"\x00",
    b"\xff\xfe",
    b"\n",
    b"\n}\n",
    b"NaN",
    b"null",
    b"true",
    b"1e999",
    b"-1",
    b"9" * 5_000,
    b'"',
    b"*a",
    b"&a [*a]",
    b"!!python/object:os.system {}",
    b"fio: pid=1, got signal=9\n",
]


def _bit(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << rng.randrange(8))]) + data[at + 1 :]


def _byte(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + bytes([rng.randrange(256)]) + data[at + 1 :]


def _digit(rng: Random, data: bytes) -> bytes:
    """Another digit in place of one: what damages a figure and leaves the form whole."""
    found = DIGIT.search(data, rng.randrange(len(data)))
    if not found:
        return _byte(rng, data)
    at = found.start()
    return data[:at] + str(rng.randrange(10)).encode() + data[at + 1 :]


def _number(rng: Random, data: bytes) -> bytes:
    """Another number in place of one."""
    found = NUMBER.search(data, rng.randrange(len(data)))
    if not found:
        return _byte(rng, data)
    whole = int(float(found[0]))
    others = [
        whole + 1,
        whole - 1,
        whole * 10,
        whole // 2,
        0,
        -whole,
        2**64,
        rng.randrange(10 * abs(whole) + 10),
    ]
    written = rng.choice([*(str(each) for each in others), f"{whole}.5", "", "1e400"])
    return data[: found.start()] + written.encode() + data[found.end() :]


def _piece_lost(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    return data[:at] + data[at + rng.randrange(1, 300) :]


def _piece_twice(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(len(data))
    end = at + rng.randrange(1, 300)
    return data[:end] + data[at:end] + data[end:]


def _cut_off(rng: Random, data: bytes) -> bytes:
    return data[: rng.randrange(len(data))]


def _line_lost(rng: Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    del lines[rng.randrange(len(lines))]
    return b"".join(lines)


def _line_twice(rng: Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    at = rng.randrange(len(lines))
    return b"".join([*lines[: at + 1], *lines[at:]])


def _lines_swapped(rng: Random, data: bytes) -> bytes:
    lines = data.splitlines(keepends=True)
    a, b = rng.randrange(len(lines)), rng.randrange(len(lines))
    lines[a], lines[b] = lines[b], lines[a]
    return b"".join(lines)


def _inserted(rng: Random, data: bytes) -> bytes:
    at = rng.randrange(len(data) + 1)
    return data[:at] + rng.choice(HOSTILE) + data[at:]


KINDS: list[Callable[[Random, bytes], bytes]] = [
    _bit,
    _byte,
    *[_digit] * 4,
    *[_number] * 3,
    _piece_lost,
    _piece_twice,
    _cut_off,
    _line_lost,
    _line_twice,
    _lines_swapped,
    _inserted,
]


def mutated(seed: str, data: bytes) -> bytes:
    """One piece of damage to some data, the same for the same seed."""
    rng = Random(seed)
    return rng.choice(KINDS)(rng, data) if data else rng.choice(HOSTILE)
