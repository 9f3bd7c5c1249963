"""Broken copies of sound bytes: what a bad disk, a bad transfer, an editor or an enemy can leave behind."""

from __future__ import annotations

import gzip
from collections.abc import Callable
from random import Random

HOSTILE = (
    b"\0",
    b"\r",
    b"\r\n",
    b"\n\n",
    b"\t",
    b",",
    b'"',
    b"'",
    b"\\",
    b": ",
    b"- ",
    b"{",
    b"]",
    b"[" * 2000,
    b'{"a":' * 2000,
    b"\xef\xbb\xbf",
    b"\xff\xfe",
    b"\x80",
    b"\xed\xa0\x80",
    b"\\ud800",
    "\u202egnp.exe".encode(),
    "\u200f".encode(),
    "\u2028".encode(),
    b"\x1b[2J",
    "\uff11".encode(),
    b'=HYPERLINK("x")',
    b"../../../etc/passwd",
    b"/etc/passwd",
    b"1e400",
    b"-1e308",
    b"nan",
    b".nan",
    b".inf",
    b"Infinity",
    b"-0.0",
    b"1_000",
    b"9" * 5000,
    b"9" * 40,
    b"x" * 140_000,
    b"2024-99-99",
    b"190:20:30",
    b"0o17",
    b"&a [*a]",
    b"*a",
    b"<<: *a",
    b"? [a]",
    b"!!python/object/apply:os.system ['true']",
    b"!!int x",
    b"!!bool x",
    b"!!timestamp x",
    b"!!binary x",
    b"!!set {a, b}",
    b"null",
    b"true",
    b"[]",
    b"{}",
    b'""',
    b"!series_matrix_table_begin\n",
    b"!Sample_geo_accession\n",
    b"^SAMPLE = GSM1\n",
    b"!sample_table_end\n",
)


def _place(data: bytes, random: Random) -> tuple[int, int]:
    """A slice of the data: mostly short, now and then of any length."""
    begin = random.randrange(len(data) + 1)
    longest = len(data) - begin
    return begin, begin + min(longest, random.choice((1, 1, 2, 4, 16, random.randrange(longest + 1))))


def _flip(data: bytes, random: Random) -> bytes:
    if not data:
        return data
    at = random.randrange(len(data))
    return data[:at] + bytes([data[at] ^ (1 << random.randrange(8))]) + data[at + 1 :]


def _insert(data: bytes, random: Random) -> bytes:
    at = random.randrange(len(data) + 1)
    return data[:at] + random.choice(HOSTILE) + data[at:]


def _replace(data: bytes, random: Random) -> bytes:
    begin, end = _place(data, random)
    return data[:begin] + random.choice(HOSTILE) + data[end:]


def _replace_field(data: bytes, random: Random) -> bytes:
    """One field of a text, between two of its separators, becomes something else: the grammar around it stays whole."""
    edges = [-1, *(at for at, byte in enumerate(data) if byte in b"\n\t, :[]{}"), len(data)]
    which = random.randrange(len(edges) - 1)
    return data[: edges[which] + 1] + random.choice(HOSTILE) + data[edges[which + 1] :]


def _delete(data: bytes, random: Random) -> bytes:
    begin, end = _place(data, random)
    return data[:begin] + data[end:]


def _repeat(data: bytes, random: Random) -> bytes:
    begin, end = _place(data, random)
    return data[:end] + data[begin:end] * random.choice((1, 2, 50)) + data[end:]


def _truncate(data: bytes, random: Random) -> bytes:
    return data[: random.randrange(len(data) + 1)]


def _shuffle_lines(data: bytes, random: Random) -> bytes:
    lines = data.splitlines(keepends=True)
    if len(lines) < 2:
        return data
    one, other = random.randrange(len(lines)), random.randrange(len(lines))
    lines[one], lines[other] = lines[other], random.choice((lines[one], lines[other], b""))
    return b"".join(lines)


def _reencode(data: bytes, random: Random) -> bytes:
    encoding = random.choice(("utf-16", "utf-8-sig", "utf-32", "cp037"))
    return data.decode("utf-8", errors="replace").encode(encoding, "replace")


_STEPS: tuple[Callable[[bytes, Random], bytes], ...] = (
    *(_flip, _insert, _replace, _replace_field, _delete, _repeat, _truncate, _shuffle_lines) * 3,
    _reencode,
)


def mutated(data: bytes, random: Random) -> bytes:
    """The data after one to four random steps."""
    for _ in range(random.choice((1, 1, 1, 2, 4))):
        data = random.choice(_STEPS)(data, random)
    return data


def mutated_file(name: str, data: bytes, random: Random) -> bytes:
    """A broken copy of a file; of a compressed one either the bytes are broken or what they unpack to."""
    if name.endswith(".gz") and random.random() < 0.7:
        return gzip.compress(mutated(gzip.decompress(data), random), compresslevel=1, mtime=0)
    return mutated(data, random)
