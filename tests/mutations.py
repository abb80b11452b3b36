"""Files that somebody broke: `mutated` gives endless copies of a good one, each with a few bytes
flipped, cut, doubled, or replaced by what a reader may trip over.
"""

import os
from collections.abc import Iterator

import numpy as np

#: How many mutated files of each kind are read. `JAXSPARSE_MUTATIONS=10000` is the full count.
COUNT = int(os.environ.get("JAXSPARSE_MUTATIONS", "500"))

TOKENS = [b"", b"\0", b"\xff\xfe", b"\xc3", b'"', b"\\", b"-", b"-1", b"0", b"1e999", b"NaN"]
TOKENS += [b"null", b"true", b"[]", b"{}", b"9" * 40, b"2147483648", b"1e-320", b"[" * 3000]
TOKENS += [b'{"a":' * 3000, b'"../../x"', b"\n", b"\r", b"\t", b",", b":", b"0.5", b"\xe2\x80\xa8"]


def mutated(good: bytes, seed: int, count: int = COUNT) -> Iterator[bytes]:
    """`count` broken copies; the same for the same seed."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        data = bytearray(good)
        for _ in range(int(rng.integers(1, 4))):
            _change(data, rng)
        yield bytes(data)


def _change(data: bytearray, rng: np.random.Generator) -> None:
    at = int(rng.integers(len(data) + 1))
    end = min(at + int(2 ** rng.uniform(0, 6)), len(data))
    way = int(rng.integers(7))
    if way == 0:
        del data[at:]
    elif way == 1:
        del data[at:end]
    elif way == 2:
        data[at:at] = data[at:end]
    elif way == 3 and at < len(data):
        data[at] ^= 1 << int(rng.integers(8))
    elif way == 4 and at < len(data):
        _number(data, at, rng)
    else:
        token = TOKENS[int(rng.integers(len(TOKENS)))]
        data[at : at if way == 5 else end] = token


def _number(data: bytearray, at: int, rng: np.random.Generator) -> None:
    """The next number in a text becomes another one."""
    begin = at
    while begin < len(data) and not 48 <= data[begin] < 58:
        begin += 1
    end = begin
    while end < len(data) and 48 <= data[end] < 58:
        end += 1
    values = (0, 1, 2, 3, 7, 1000, 2**16, 2**31 - 1, 2**31, 2**62, 10**30)
    data[begin:end] = str(values[int(rng.integers(len(values)))]).encode()
