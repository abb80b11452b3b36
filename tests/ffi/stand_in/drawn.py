"""Calls of handlers, drawn from their contracts.

`samples/*.toml` has rows of sizes and attributes that replace those of a contract's own `sample`:
what tensor-core kernels and single variants require, and sizes near the limits; nothing is
allocated. Calls are drawn from a row for each of its variants and each element type. `given`,
`absent`: operands that are given, or not. `often`: multiplies the number of calls.
"""

import copy
import dataclasses
import itertools
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from ffi.hostile import draw, spoil
from ffi.stand_in.loaded import Array, Call, StandIn

#: Handler -> its rows.
ROWS = {
    name: rows
    for file in sorted(Path(__file__).with_name("samples").glob("*.toml"))
    for name, rows in tomllib.loads(file.read_text()).items()
}
_NEEDED = re.compile(r"scratch has 0 \w+; it takes (\d+)")


def handlers() -> list[str]:
    """Of CUDA, those whose calls can be drawn."""
    return list(draw.handlers("cuda"))


def valid(name: str, seed: int, count: int) -> Iterator[Call]:
    """`count` calls for each row of a handler's samples, each variant in the row, and each element
    type.
    """
    contract = draw.handlers("cuda")[name]
    rng = np.random.default_rng(seed)
    elements = contract.elements("T") if "T" in contract.types else (None,)
    for row in [{}, *ROWS.get(name, [])]:
        for variant, element in itertools.product(row.get("variant", [None]), elements):
            values = contract.sample | row | ({} if variant is None else {"variant": [variant]})
            types = contract.types | ({} if element is None else {"T": element})
            wanted = dataclasses.replace(contract, sample=values, types=types)
            for _ in range(count * row.get("often", 1)):
                yield _of(_drawn(wanted, row, rng))


def spoilt(name: str, seed: int, count: int) -> Iterator[tuple[Call, str]]:
    """`count` valid calls with one thing changed in each, and what was changed."""
    rng = np.random.default_rng(seed)
    for _ in range(count):
        call, change = spoil.spoil(draw.draw(draw.handlers("cuda")[name], rng), rng)
        yield _of(call), change


def exact(stand_in: StandIn, call: Call, device: int) -> Call | None:
    """The call with the smallest workspace that its handler asks for; None if it asks for none."""
    workspaces = [
        i for i, r in enumerate(draw.handlers("cuda")[call.handler].results) if r.workspace
    ]
    if not workspaces:
        return None
    (place,) = workspaces
    error, _ = stand_in.run(_sized(call, place, 0), device)
    found = _NEEDED.search(error)
    return _sized(call, place, int(found[1])) if found else None


def _sized(call: Call, place: int, size: int) -> Call:
    results = list(call.results)
    results[place] = (size,), results[place][1]
    return call._replace(results=tuple(results))


def _drawn(contract: Any, row: dict[str, Any], rng: np.random.Generator) -> draw.Call:
    """A call that has the operands in the row's `given`, and lacks those in its `absent`."""
    for _ in range(10_000):
        call = draw.draw(contract, rng)
        sizes = {name: int(np.prod(shape)) for name, shape, _ in call.operands}
        given, absent = row.get("given", []), row.get("absent", [])
        if all(sizes[name] for name in given) and not any(sizes[name] for name in absent):
            for attribute in contract.attributes:
                if attribute.type == "f32" and attribute.name in row:
                    picked = row[attribute.name][int(rng.integers(len(row[attribute.name])))]
                    call.attributes[attribute.name] = np.float32(picked)
            return call
    raise ValueError(f"{contract.name}: no draw has {row}")


def _of(call: draw.Call) -> Call:
    def arrays(found: list[tuple[str, tuple[int, ...], Any]]) -> tuple[Array, ...]:
        return tuple((tuple(shape), dtype) for _, shape, dtype in found)

    call = copy.deepcopy(call)
    return Call(
        call.handler, arrays(call.operands), arrays(call.results), call.attributes, call.aliases
    )
