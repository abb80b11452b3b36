"""The tables of docs/numerics.md, which the tests hold every operation to."""

import dataclasses
import functools
import re
from pathlib import Path

PAGE = Path(__file__).parents[2] / "docs/numerics.md"
#: Of a result's type: half of the distance of two neighbours, as a share of the number.
UNIT = {"float32": 2.0**-24, "bfloat16": 2.0**-8, "float16": 2.0**-11}


@dataclasses.dataclass(frozen=True)
class Promise:
    """A row of the table of operations.

    Attributes:
        repeat: "always", or "deterministic": under `js.config(deterministic=True)`.
        place: whether the bits of a row are the same at every place in the batch; None: no batch.
        threads: gradients that depend on the number of threads.
        device: whether every implementation gives the same bits.
        sums: the dtype of sums, or nothing.
        bound: a formula of K, e, S, u and y, or "exact".
        terms: the formula of K, or nothing.
    """

    repeat: str
    place: bool | None
    threads: frozenset[str]
    device: bool
    sums: str
    terms: str
    bound: str


def table(heading: str) -> list[list[str]]:
    """The cells of the first table under a heading, without its head."""
    _, found, rest = PAGE.read_text().partition(f"\n## {heading}\n")
    assert found, f"{PAGE} has no section {heading!r}"
    rows = re.search(r"(?:^\|.*\n)+", rest, re.MULTILINE)
    assert rows, f"{heading} has no table"
    return [[c.strip() for c in r.strip("|").split("|")] for r in rows[0].splitlines()[2:]]


def names(cell: str) -> list[str]:
    """What a cell has in backquotes."""
    return re.findall(r"`([^`]+)`", cell)


@functools.cache
def promises() -> dict[str, Promise]:
    """Operation -> its row."""
    found: dict[str, Promise] = {}
    for operations, repeat, place, threads, device, sums, terms, bound in table(
        "Operation by operation"
    ):
        assert repeat in ("always", "deterministic"), repeat
        assert threads == "yes" or threads.startswith("not the gradient of "), threads
        row = Promise(
            repeat,
            {"yes": True, "-": None}[place],
            frozenset(names(threads)),
            {"yes": True, "no": False}[device],
            sums.strip("-"),
            terms.strip("`-"),
            bound.strip("`"),
        )
        found |= dict.fromkeys(names(operations), row)
    return found
