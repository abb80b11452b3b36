"""The ways of running a problem, each with several draws of its operands: a mask is data, so one
compiled program serves them all.
"""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import AxisType, NamedSharding, PartitionSpec

from fuzz.problem import Arrays, Draw, Problem

#: Of the largest value of a result, for each dtype: rounding of the operands' products and of the
#: result. Sums are float32.
ROUNDING = {"float32": 3e-6, "bfloat16": 1.2e-2, "float16": 1.5e-3}
if jax.default_backend() == "gpu":
    ROUNDING["float32"] = 1e-3  # TF32 is the default there
#: Half the distance of neighbouring values of a dtype, as a share: what one term of a sum may lose.
UNIT = {"float32": 2.0**-24, "bfloat16": 2.0**-9, "float16": 2.0**-12}
DEVICES = 4
#: The step of a difference, and that without edges; rounding may cross an edge nearer than NEAR.
STEPS, NEAR = (1e-7, 1e-5), 3e-5
#: How often what does not count is NaN.
SPOILT = 0.3


def way_of(problem: Problem, draw: Draw) -> str:
    """How this problem runs; a way that does not suit it is another one."""
    way, first = draw.way, next(iter(problem.floats.values()), None)
    if way == "gradient" and (not problem.smooth or first is None):
        return "values"
    if way == "mesh" and (not problem.split or jax.device_count() < DEVICES):
        return "values"
    return way


def rounding(problem: Problem) -> float:
    """The share of the largest value that one operation may be wrong by."""
    return coarsest(problem, ROUNDING) * (1 + problem.depth**0.5) * problem.loose


def coarsest(problem: Problem, by: dict[str, float]) -> float:
    """Of the dtypes of a problem, the largest in `by`."""
    kinds = [np.dtype(dtype).name for _, dtype in problem.floats.values()] or ["float32"]
    return max(by[kind] for kind in kinds)


def wide(operands: Arrays) -> Arrays:
    """Floats as float64."""
    return {
        name: v.astype(np.float64) if jnp.issubdtype(v.dtype, jnp.floating) else v
        for name, v in operands.items()
    }


def spoilt(problem: Problem, floats: Arrays, data: Arrays, draw: Draw) -> tuple[Arrays, Arrays]:
    """The floats for the op and those for the oracle, which differ where nothing counts."""
    if not draw.chance(SPOILT):
        return floats, floats
    given, plain = dict(floats), dict(floats)
    for name, where in problem.unread({**floats, **data}).items():
        value = floats[name]
        given[name] = np.where(where, value.dtype.type(draw.pick(np.nan, np.inf)), value)
        plain[name] = np.where(where, value.dtype.type(0), value)
    return given, plain


def compare(problem: Problem, got: Any, want: Any) -> str:
    """What is wrong with a result, or nothing."""
    problem.compared += 1
    found, wanted = jax.tree.leaves(problem.seen(got)), jax.tree.leaves(want)
    if len(found) != len(wanted):
        return f"{len(found)} arrays, not {len(wanted)}"
    for place, (a, b) in enumerate(zip(found, wanted, strict=True)):
        where, b = f"result {place}: " if len(found) > 1 else "", np.asarray(b)
        if a.shape != b.shape:
            return f"{where}shape {a.shape}, not {b.shape}"
        if not b.size:  # which JAX cannot bring to the host from several devices
            continue
        a = np.asarray(a)
        if not jnp.issubdtype(a.dtype, jnp.floating):
            if wrong := int((a != b).sum()):
                return f"{where}wrong in {wrong} of {a.size} places"
            continue
        a = a.astype(np.float64)
        with np.errstate(invalid="ignore"):
            error = float(np.where(a == b, 0, np.abs(a - b)).max(initial=0.0))
        most = float(np.abs(np.where(np.isfinite(b), b, 0)).max(initial=0.0))
        bound = rounding(problem) * max(most, 1e-2)
        if not error <= bound:  # a NaN is not
            return f"{where}wrong by {error:.3g}, {bound:.3g} is allowed"
    return ""


def values(problem: Problem, draw: Draw, draws: int, jit: bool = True) -> str:
    """The result itself."""
    run: Any = lambda floats, data: problem.call(**floats, **data)  # noqa: E731
    run = jax.jit(run) if jit else run
    for number in range(draws if jit else 1):
        floats, data = problem.draw(draw.rng)
        given, plain = spoilt(problem, floats, data, draw)
        got = run(*jax.tree.map(jnp.asarray, (given, data)))
        if why := compare(problem, got, problem.meaning(**wide(plain), **data)):
            return f"draw {number}: {why}"
    return ""


def eager(problem: Problem, draw: Draw, draws: int) -> str:
    """Outside of jit, once."""
    return values(problem, draw, 1, jit=False)


def vmap(problem: Problem, draw: Draw, draws: int) -> str:
    """Two draws at once: all operands of them, or those that are drawn."""
    names = [*problem.floats, *problem.draw(np.random.default_rng(0))[1]]
    moving = [name for name in names if draw.chance(0.6)] or names
    axes = {name: 0 if name in moving else None for name in names}
    run = jax.jit(jax.vmap(lambda arrays: problem.call(**arrays), in_axes=(axes,)))
    for number in range(max(draws // 2, 1)):
        both = [floats | data for floats, data in (problem.draw(draw.rng) for _ in "ab")]
        both[1] |= {name: v for name, v in both[0].items() if name not in moving}
        given = {
            n: jnp.stack([b[n] for b in both]) if n in moving else jnp.asarray(v)
            for n, v in both[0].items()
        }
        got = run(given)
        for i, operands in enumerate(both):
            one = jax.tree.map(lambda v, i=i: v[i], got)
            if why := compare(problem, one, problem.meaning(**wide(operands))):
                return f"draw {number}, entry {i} over {moving}: {why}"
    return ""


def gradient(problem: Problem, draw: Draw, draws: int) -> str:
    """The derivative along a random direction of every array, against a central difference."""
    first = problem.draw(np.random.default_rng(0))
    shapes = jax.eval_shape(lambda f, d: problem.call(**f, **d), *first)

    def loss(floats: Any, data: Any, leads: Any) -> Any:
        leaves = floats_of(problem.call(**floats, **data))
        each = [jnp.sum(v.astype(jnp.float32) * w) for v, w in zip(leaves, leads, strict=True)]
        return sum(each, start=jnp.float32(0))

    gradients, step = jax.jit(jax.grad(loss)), STEPS[problem.edges is None]
    for number in range(draws):
        floats, data = problem.draw(draw.rng)
        if problem.edges and near(problem.edges(**wide(floats), **data)):
            continue
        # What the op is given as cotangents: of the dtype of each result.
        leads = [
            draw.rng.standard_normal(v.shape).astype(v.dtype).astype(np.float64)
            for v in floats_of(shapes)
        ]
        along = {k: draw.rng.standard_normal(v.shape) for k, v in floats.items()}
        singles = [v.astype(np.float32) for v in leads]
        got = wide(jax.tree.map(np.asarray, gradients(floats, data, singles)))
        exact = wide(floats)
        moved = [{k: v + sign * step * along[k] for k, v in exact.items()} for sign in (1, -1)]
        parts = problem.meaning, *(part(**exact, **data) for part in problem.parts)
        terms = [
            [(a - b) * w / (2 * step) for a, b, w in zip(*ends, leads, strict=True)]
            for ends in ([floats_of(part(**each, **data)) for each in moved] for part in parts)
        ]
        want = float(sum(each.sum() for each in terms[0]))
        most = max(float(sum(np.abs(each).sum() for each in part)) for part in terms)
        bad = [k for k, v in exact.items() if got[k].shape != v.shape]
        if bad:
            return f"draw {number}: the gradients of {bad} have other shapes"
        shares = [got[k] * along[k] for k in exact]
        found, size = (float(sum(f(p).sum() for p in shares)) for f in (np.asarray, np.abs))
        problem.compared += 1
        # Of terms that cancel, each loses a share of itself: more than any share of their sum.
        bound = 3 * rounding(problem) * max(size, abs(want), 1e-2)
        bound += 2 * coarsest(problem, UNIT) * most
        if not abs(found - want) <= bound:
            return f"draw {number}: {found:.6g}, not {want:.6g} within {bound:.3g}"
    return ""


def near(edges: list[np.ndarray]) -> bool:
    """Whether an entry is close to 0, and not 0."""
    return any(bool(((v != 0) & (np.abs(v) < NEAR)).any()) for v in edges)


def floats_of(result: Any) -> list[Any]:
    """The leaves that a derivative is of."""
    return [v for v in jax.tree.leaves(result) if jnp.issubdtype(v.dtype, jnp.floating)]


def mesh(problem: Problem, draw: Draw, draws: int) -> str:
    """Over four devices, by the axes that a mesh splits, under plain jit."""
    kind = draw.pick(AxisType.Auto, AxisType.Explicit if problem.explicit else AxisType.Auto)
    over = jax.make_mesh((DEVICES,), ("m",), (kind,), devices=jax.devices()[:DEVICES])

    def put(name: str, value: Any) -> Any:
        axis = problem.split.get(name)
        by = PartitionSpec() if axis is None else PartitionSpec(*[None] * axis, "m")
        return jax.device_put(value, NamedSharding(over, by))

    run = jax.jit(lambda arrays: problem.call(**arrays))
    for number in range(draws):
        floats, data = problem.draw(draw.rng)
        operands = floats | data
        got = run({name: put(name, value) for name, value in operands.items()})
        if why := compare(problem, got, problem.meaning(**wide(operands))):
            return f"draw {number}, {kind}: {why}"
    return ""


WAYS = {"values": values, "eager": eager, "vmap": vmap, "gradient": gradient, "mesh": mesh}
