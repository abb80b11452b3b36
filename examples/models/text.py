"""Batches of real text: Python's own language reference, which every installation carries, cut into
sentences, paragraphs or whole topics, one integer a word or mark.
"""

import functools
import pydoc_data.topics
import re
import zlib
from typing import NamedTuple

import numpy as np

VOCABULARY = 30522
#: Unit of text -> tokens that a batch of it is padded to.
LONGEST = {"sentences": 64, "paragraphs": 128, "topics": 512}


class Batch(NamedTuple):
    """Token ids int32[batch, longest], zero past each row's length, and lengths int32[batch]."""

    ids: np.ndarray
    lengths: np.ndarray

    @property
    def share(self) -> float:
        """Mean length over the longest."""
        return float(self.lengths.mean() / self.ids.shape[1])


@functools.cache
def pieces(unit: str) -> tuple[tuple[int, ...], ...]:
    """The token ids of every piece of text; a unit is a key of LONGEST."""
    topics = [_paragraphs(text) for text in pydoc_data.topics.topics.values()]
    if unit == "topics":
        texts = [" ".join(topic) for topic in topics]
    elif unit == "paragraphs":
        texts = [paragraph for topic in topics for paragraph in topic]
    else:
        texts = [
            sentence
            for topic in topics
            for paragraph in topic
            for sentence in re.split(r"(?<=[.!?]) (?=[A-Z])", paragraph)
        ]
    found = (re.findall(r"\w+|[^\w\s]", text) for text in texts)
    return tuple(tuple(map(_token, words)) for words in found if words)


def _paragraphs(text: str) -> list[str]:
    """The paragraphs of prose; grammar, code and headings are left out."""
    found = (" ".join(p.split()) for p in re.split(r"\n\s*\n", text))
    marks = ("::=", ">>>")
    return [
        p
        for p in found
        if re.match(r"[A-Z][a-z]", p) and p[-1] in ".:" and not any(m in p for m in marks)
    ]


def _token(word: str) -> int:
    return 1 + zlib.crc32(word.lower().encode()) % (VOCABULARY - 1)


def batch_of_share(
    unit: str, share: float, batch: int, longest: int | None = None, seed: int = 0
) -> Batch:
    """Of 400 random batches with a piece that fills it, the one whose mean length is nearest to
    `share` of the longest.

    Longer pieces are cut off, as an encoder cuts them.

    Args:
        unit: a key of LONGEST.
        share: mean length over the longest, 0 to 1.
        batch: rows.
        longest: tokens of a row; None takes LONGEST's.
        seed: equal seeds give equal batches.
    """
    longest = longest or LONGEST[unit]
    found = pieces(unit)
    lengths = np.minimum([len(p) for p in found], longest)
    full = np.flatnonzero(lengths == longest)
    rng = np.random.default_rng(seed)
    drawn = rng.integers(0, len(found), (400, batch))
    drawn[:, 0] = rng.choice(full, len(drawn))
    means = lengths[drawn].mean(1) / longest
    chosen = rng.permutation(drawn[np.abs(means - share).argmin()])
    ids = np.zeros((batch, longest), np.int32)
    for row, piece in zip(ids, (found[i] for i in chosen), strict=True):
        row[: min(len(piece), longest)] = piece[:longest]
    return Batch(ids, lengths[chosen].astype(np.int32))
