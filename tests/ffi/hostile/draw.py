"""A valid call of a handler, drawn from its contract."""

import dataclasses
import functools
import sys
from pathlib import Path
from typing import Any

import jax.numpy as jnp
import numpy as np

ROOT = Path(__file__).parents[3]
sys.path.insert(0, str(ROOT / "cmake"))
from contract import cpp, expressions  # noqa: E402
from contract.declaration import Array, Handler, bindings, load  # noqa: E402


@functools.cache
def handlers(platform: str) -> dict[str, Handler]:
    """The contracts of a platform, "cpu" or "cuda", by name."""
    return load(ROOT, platform).handlers


def decoder(handler: Handler) -> str:
    """The C++ header that the build makes of a contract."""
    return cpp.header(handler)


DTYPES: dict[str, Any] = {"pred": np.bool_, "u8": np.uint8, "u16": np.uint16, "u32": np.uint32}
DTYPES |= {"s32": np.int32, "f32": np.float32, "bf16": jnp.bfloat16, "f16": np.float16}
#: An operand that a handler wants in the place of a result.
ALIASES = {"base": "out"}


@dataclasses.dataclass
class Call:
    """A call as `jax.ffi.ffi_call` takes it; operands and results are (name, shape, dtype)."""

    handler: str
    operands: list[tuple[str, tuple[int, ...], Any]]
    results: list[tuple[str, tuple[int, ...], Any]]
    attributes: dict[str, Any]
    aliases: dict[int, int]
    dims: dict[str, int]


def draw(handler: Handler, rng: np.random.Generator) -> Call:
    """A call that keeps the contract."""
    for _ in range(10000):
        found = _try(handler, rng)
        if found is not None:
            return found
    raise ValueError(f"{handler.name}: no sample keeps the relations")


def _pick(rng: np.random.Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def _attributes(handler: Handler, rng: np.random.Generator) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for a in handler.attributes:
        low = max(a.least, 0)
        few = list(range(low, min(low + 5, a.most + 1)))
        values = few if a.enum or a.most - a.least < 5 else few[:2]
        values = handler.sample.get(a.name, values)
        found[a.name] = 1.0 if a.type == "f32" else _pick(rng, values)
    return found


def _try(handler: Handler, rng: np.random.Generator) -> Call | None:
    attributes = _attributes(handler, rng)
    groups = []
    if handler.repeated:
        times = int(rng.integers(handler.repeated.least, handler.repeated.most + 1))
        groups = [handler.repeated.arrays] * times
    known = frozenset(attributes)
    dims = {name: _pick(rng, handler.sample[name]) for name in handler.dims}
    absent = {a.name for a in handler.arrays if a.absent and rng.random() < 0.5}
    for name, array in handler.dims.items():
        if array.name in absent:
            dims[name] = 0
    types = {name: _pick(rng, handler.elements(kind)) for name, kind in handler.types.items()}
    for name, kind in handler.types.items():
        if "T" in kind.split("|"):
            types[name] = _pick(rng, (types["T"], "f32"))
    values = attributes | dims
    made = {a.name: _array(a, values, types, absent, rng) for a in handler.arrays}
    if any(v is None for v in made.values()):
        return None
    sizes = {name: int(np.prod(v[1])) for name, v in made.items()}  # pyright: ignore
    try:
        if not all(expressions.evaluate(r, values, sizes) for r in handler.relations):
            return None
    except ZeroDivisionError:
        return None
    operands = [made[a.name] for a in handler.operands]
    results = [made[a.name] for a in handler.results]
    for arrays in groups:
        local = {n: _pick(rng, handler.sample[n]) for n in bindings(arrays, known | set(dims))}
        more = [_array(a, values | local, types, set(), rng) for a in arrays]
        (operands if handler.repeated.of == "operands" else results).extend(more)  # pyright: ignore
    places = {v[0]: i for i, v in enumerate(results)}  # pyright: ignore
    aliases = {
        i: places[ALIASES[v[0]]]
        for i, v in enumerate(operands)
        if v[0] in ALIASES and np.prod(v[1]) > 0
    }
    typed = {a.name: a.type for a in handler.attributes}
    encoded = {k: encode(v, typed[k]) for k, v in attributes.items()}
    return Call(handler.name, operands, results, encoded, aliases, values)  # pyright: ignore


def encode(value: Any, kind: str) -> Any:
    """An attribute's value as the handlers decode it."""
    return {"i64": np.int64, "bool": np.bool_, "f32": np.float32}[kind](value)


def _array(
    array: Array,
    values: dict[str, Any],
    types: dict[str, str],
    absent: set[str],
    rng: np.random.Generator,
) -> tuple[str, tuple[int, ...], Any] | None:
    kind = _pick(rng, array.type.split("|"))
    dtype = DTYPES[types.get(kind, kind)]
    if array.name in absent:
        return array.name, (0,), dtype
    forms = [f for f in array.forms if not f.when or expressions.evaluate(f.when, values)]
    try:
        shape = tuple(int(expressions.evaluate(d, values)) for d in _pick(rng, forms).dims)
    except ZeroDivisionError:
        return None
    return (array.name, shape, dtype) if min(shape, default=0) >= 0 else None


def fill(
    call: Call,
    name: str,
    shape: tuple[int, ...],
    dtype: Any,
    rng: np.random.Generator,
):
    """Values for an operand: any, but mostly valid ones where a handler may refuse others."""
    if name == "expand":
        return rng.integers(0, call.dims.get("distinct", 4), shape).astype(dtype)
    if call.handler == "bounded_network" and name in ("table", "starts"):
        return _network(name, shape, dtype, rng, call.dims.get("bundles", 0) > 0)
    if np.issubdtype(dtype, np.integer) and dtype != np.uint32:
        values = rng.integers(0, 40, shape).astype(dtype)
        if dtype == np.int32 and rng.random() < 0.3:  # some of them point anywhere
            wild = np.asarray(WILD, np.uint32).view(np.int32)[rng.integers(0, len(WILD), shape)]
            values = np.where(rng.random(shape) < 0.3, wild, values)
        return values
    if dtype == np.uint32:
        return rng.integers(0, 2**32, shape, dtype=np.uint32)
    if dtype == np.bool_:
        return rng.random(shape) < 0.5
    return rng.standard_normal(shape).astype(dtype)


#: Numbers of a network's table or starts that somebody made up.
WILD = [0, 1, 2, 3, 4, 5, 8, 9, 16, 31, 48, 2**30, 2**31 - 1, 2**31, 2**32 - 4, 2**32 - 1]


def _network(
    name: str, shape: tuple[int, ...], dtype: Any, rng: np.random.Generator, bundles: bool
):
    """Layers of 4 inputs, 4 rows and 8 entries, or of a bundle of 16 rows; sometimes anything."""
    if rng.random() < 0.2:
        return np.asarray(WILD, np.uint32)[rng.integers(0, len(WILD), shape)].astype(dtype)
    whole = np.zeros(shape, dtype)
    rows = [[5 * i, 2 * i, 4 * i, 4, 4, 3, 2 * i, 1] for i in range(64)]
    if bundles:
        rows = [[2 * i, 2 * i, 16 * i, 16 if i else 4, 16, 3, 32 * i, 16] for i in range(64)]
    values = np.asarray(rows if name == "table" else [i % 5 * 2 for i in range(640)])
    values = values.astype(dtype)
    part = tuple(slice(0, min(a, b)) for a, b in zip(shape, values.shape, strict=False))
    if len(part) == len(shape) == values.ndim:
        whole[part] = values[part]
    return whole
