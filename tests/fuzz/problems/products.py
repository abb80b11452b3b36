"""Products of matrices: by groups, under masks of blocks, and the feed-forward network."""

from typing import Any

import jax.numpy as jnp
import numpy as np

import jaxsparse as js
from fuzz import oracle
from fuzz.problem import Arrays, Draw, Problem, bits
from jaxsparse.ops.grouped_gated.api import grouped_gated as gated


def sizes_of(rng: np.random.Generator, rows: int, groups: int) -> np.ndarray:
    """Sizes of groups: of all rows or some; now and then they are wrong."""
    cuts = np.sort(rng.integers(0, rows + 1, groups))
    sizes = np.diff(cuts, prepend=0).astype(np.int32)
    if rng.random() < 0.1:
        sizes[rng.integers(groups)] = rng.choice([-3, -(2**31), rows + 5, 2**31 - 1])
    return sizes


def grouped_matmul(draw: Draw) -> Problem:
    """With and without gather, scatter and weights of rows; indices may be out of range."""
    dtype, m, groups = draw.dtype(), draw.size(120), draw.size(9)
    depth, outputs = draw.size(70), draw.lead(70)
    gathers, scatters, weighs = (draw.chance(0.3) for _ in range(3))
    rows = draw.size(150) if gathers else m
    options = {"num_rows": draw.size(90)} if scatters and draw.chance(0.5) else {}
    height = options.get("num_rows", m)
    floats = {"lhs": ((m, depth), dtype), "rhs": ((groups, depth, outputs), dtype)}
    floats |= {"row_weights": ((rows,), jnp.dtype("float32"))} if weighs else {}

    def data(rng: np.random.Generator) -> Arrays:
        found = {"group_sizes": sizes_of(rng, rows, groups)}
        for name, wanted, most in (("gather", gathers, m), ("scatter", scatters, height)):
            if wanted:
                at = rng.integers(0, most, rows)
                bad = rng.random(rows) < rng.choice([0.0, 0.2])
                wrong = rng.choice([-1, most, 2**31 - 1, -(2**31)], rows)
                found[name] = np.where(bad, wrong, at).astype(np.int32)
        return found

    def meaning(lhs: Any, rhs: Any, group_sizes: Any, **more: Any) -> Any:
        return oracle.grouped(lhs, rhs, group_sizes, **more, **options)

    return Problem(
        f"{floats}, {rows} sorted rows, {options}",
        lambda lhs, rhs, group_sizes, **more: js.grouped_matmul(
            lhs, rhs, group_sizes, **more, **options
        ),
        meaning,
        floats,
        depth * (1 + scatters * (rows // height)),
        data,
        split={"rhs": 2},
        loose=2.0 if scatters else 1.0,
    )


def grouped_gated(draw: Draw) -> Problem:
    """The first half of experts."""
    dtype, m, groups = draw.dtype(), draw.size(90), draw.size(6)
    depth, outputs, gathers = draw.size(60), draw.lead(60), draw.chance(0.5)
    rows = draw.size(90) if gathers else m
    weights = ((groups, depth, outputs), dtype)
    floats = {"lhs": ((m, depth), dtype), "gate": weights, "up": weights}

    def data(rng: np.random.Generator) -> Arrays:
        found = {"group_sizes": sizes_of(rng, rows, groups)}
        return found | ({"gather": rng.integers(0, m, rows).astype(np.int32)} if gathers else {})

    def meaning(lhs: Any, gate: Any, up: Any, group_sizes: Any, gather: Any = None) -> Any:
        y = oracle.grouped(lhs, gate, group_sizes, gather)
        return oracle.activated(y, "silu") * oracle.grouped(lhs, up, group_sizes, gather)

    text = f"{floats}, {rows} sorted rows"
    split = {"gate": 2, "up": 2}
    return Problem(text, gated, meaning, floats, depth, data, split=split, loose=4.0)


def masked_matmul(draw: Draw) -> Problem:
    """Any of the three masks, each of its own blocks, with leading axes that broadcast."""
    dtype, (m, k, n) = draw.dtype(), (draw.size(80), draw.size(80), draw.lead(80))
    shapes = {"a": (m, k), "b": (k, n), "out": (m, n)}
    lead = draw.pick((), (), (draw.size(3),))
    leads = {name: lead if draw.chance(0.7) else () for name in ("a", "b")}
    sides = {name: (draw.pick(1, 2, 8, 16, 33), draw.pick(1, 2, 8, 16, 33)) for name in shapes}
    masked = [name for name in shapes if draw.chance(0.5)]
    granularity = sides if draw.chance(0.5) else sides["a"]
    sides = granularity if isinstance(granularity, dict) else dict.fromkeys(shapes, granularity)
    density = draw.pick(None, None, 0.1, 0.5)

    def grid(name: str) -> tuple[int, int]:
        (rows, columns), (high, wide) = shapes[name], sides[name]
        return -(-rows // high), -(-columns // wide)

    floats = {name: ((*leads[name], *shapes[name]), dtype) for name in ("a", "b")}
    whole = np.broadcast_shapes(leads["a"], leads["b"])
    of = {name: draw.pick((), whole if name == "out" else leads[name]) for name in masked}

    def kept(name: str, masks: dict[str, Any]) -> Any:
        mask = masks.get(f"{name}_mask")
        return True if mask is None else oracle.spread(mask, sides[name], shapes[name])

    def meaning(a: Any, b: Any, **masks: Any) -> Any:
        a, b = (np.where(kept(name, masks), v, 0) for name, v in (("a", a), ("b", b)))
        return np.where(kept("out", masks), a @ b, 0)

    def call(a: Any, b: Any, **masks: Any) -> Any:
        return js.masked_matmul(a, b, **masks, granularity=granularity, density=density)

    def unread(operands: Arrays) -> Arrays:
        found = {n: kept(n, operands) for n in masked[:1] if n != "out"}
        return {n: np.broadcast_to(~at, operands[n].shape) for n, at in found.items()}

    return Problem(
        f"{floats}, masks {of}, {granularity}, density {density}",
        call,
        meaning,
        floats,
        k,
        lambda rng: {f"{n}_mask": bits(rng, (*of[n], *grid(n))) for n in masked},
        split={"b": 1 + len(leads["b"])},
        explicit=not {"b", "out"} & {*masked},  # whose blocks the shards may cut
        unread=unread,
    )


def kept_matmul(draw: Draw) -> Problem:
    """A matrix that is stored as blocks; the mask may keep more of them than there is room for."""
    dtype, (m, k, n) = draw.dtype(), (draw.size(60), draw.size(60), draw.lead(60))
    block = draw.pick(1, 2, 8, 16, 33), draw.pick(1, 2, 8, 16, 33)
    grid = -(-m // block[0]), -(-k // block[1])
    room = min(draw.size(40), grid[0] * grid[1])
    floats = {"values": ((room, *block), dtype), "b": ((k, n), dtype)}

    def meaning(values: Any, b: Any, mask: Any) -> Any:
        whole = np.zeros((grid[0] * block[0], grid[1] * block[1]))
        for value, (i, j) in zip(values, np.argwhere(mask), strict=False):
            at = np.s_[i * block[0] : (i + 1) * block[0], j * block[1] : (j + 1) * block[1]]
            whole[at] = value
        return whole[:m, :k] @ b

    def call(values: Any, b: Any, mask: Any) -> Any:
        return js.kept_matmul(values, js.kept_blocks(mask, (m, k), block, capacity=room), b)

    text = f"{floats}, {(m, k)} in blocks of {block}"
    data = lambda rng: {"mask": bits(rng, grid)}  # noqa: E731
    return Problem(text, call, meaning, floats, k, data, split={"b": 1})


def sparse_ffn(draw: Draw) -> Problem:
    """With a gate or top_k; the values of top_k are whole, so that each machine finds the same."""
    dtype, squared, lead = draw.dtype(), draw.chance(0.5), draw.lead(24)
    depth, hidden, outputs = draw.size(40), draw.size(90), draw.size(40)
    turned = draw.chance(0.3)
    sides = (hidden, depth) if turned else (depth, hidden)
    floats = {"x": ((lead, depth), dtype), "w_up": (sides, dtype)}
    floats |= {"w_down": ((hidden, outputs), dtype)}
    top_k = draw.size(hidden) if draw.chance(0.3) else None
    if top_k:
        squared = False
    elif draw.chance(0.5):
        floats["w_gate"] = ((depth, hidden), dtype)
    options = {
        "activation": "relu2" if squared else "relu",
        "top_k": top_k,
        "transposed_up": turned,
    }
    # A bias of the gate's kind leaves few activations that are not zero.
    shift = draw.pick(0.0, 0.0, -0.4)

    def values(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        if top_k:
            return rng.integers(-1, 2, shape).astype(np.float64)
        return rng.standard_normal(shape) / 2 + shift * (rng.random(shape) < 0.5)

    def meaning(x: Any, w_up: Any, w_down: Any, w_gate: Any = None) -> Any:
        w_up = w_up.T if turned else w_up
        h = np.maximum(x @ (w_up if w_gate is None else w_gate), 0)
        h = h**2 if squared else h
        h = h if w_gate is None else h * (x @ w_up)
        if top_k:
            kept = np.zeros(h.shape, bool)
            np.put_along_axis(kept, oracle.best(np.abs(h), top_k), True, -1)
            h = h * kept
        return h @ w_down

    def edges(x: Any, w_up: Any, w_down: Any, w_gate: Any = None) -> Any:
        w_up = w_up.T if turned else w_up
        return [x @ (w_up if w_gate is None else w_gate)]

    return Problem(
        f"{floats}, {options}",
        lambda **arrays: js.sparse_ffn(**arrays, **options),
        meaning,
        floats,
        depth * hidden,
        smooth=top_k is None,
        edges=edges,
        split={"x": 0},
        wide=values,
        loose=6.0,  # the first products and h are rounded, too
    )


OPS = {
    "grouped_gated": grouped_gated,
    "grouped_matmul": grouped_matmul,
    "masked_matmul": masked_matmul,
    "kept_matmul": kept_matmul,
    "sparse_ffn": sparse_ffn,
}
