"""A mixture of experts against the ways that jitted JAX offers without a grouped product: an expert
after the other, all experts in one padded batch, and `jax.lax.ragged_dot`.

The first two are compiled for the routing of the very batch that is timed (each expert's number of
rows, the longest of them), which no program that serves more than one batch can know: they get the
least work that their way has. From `UNROLLED_EXPERTS` on, the serial loop is a `jax.lax.scan` whose
steps are all as long as the longest expert: a program with a product of its own shape for each of
many experts does not compile in sensible time.
"""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.bench.products.run import (
    Comparison,
    ProductPlan,
    check_whats,
    element_type,
    normal,
    precision,
)
from jaxsparse.nn import moe
from jaxsparse.testing.product_cases import MoeCase

OP = "moe"
WHATS = ("forward", "forward + backward")
SERIAL, PADDED, RAGGED, OURS = "serial loop", "padded batch", "ragged_dot", "jaxsparse"
UNROLLED_EXPERTS = 64
Layer = Callable[[int, jax.Array, dict[str, jax.Array]], jax.Array]


def comparisons(
    case: MoeCase, dtype: str, plan: ProductPlan, whats: Sequence[str] = WHATS
) -> Iterator[Comparison]:
    """Those of one case. Every side routes: softmax, the best experts, the order of the rows.

    Args:
        case: tokens, experts, sizes.
        dtype: one of `measure.dtypes.NAMES`.
        plan: how.
        whats: of WHATS; the backward pass gives the gradients of the tokens and of all parameters.

    Raises:
        ValueError: for a dtype or what that does not exist.
    """
    kind = element_type(dtype)
    check_whats(whats, WHATS)
    operands = make_operands(case, kind)

    def draw(seed: int) -> jax.Array:
        """Every set has the routing of the first: its tokens times a power of two."""
        x = normal((case.tokens, case.d), kind, 10 + seed % plan.calls)
        return x * jnp.asarray(2.0 ** (-(seed // plan.calls)), kind)

    sizes = [routed_sizes(case, draw(i), operands) for i in range(plan.calls)]
    exactness = precision(dtype)
    layers: dict[str, Layer] = {
        SERIAL: lambda i, x, p: by_rows(case, one_by_one(sizes[i], exactness), x, p),
        PADDED: lambda i, x, p: by_rows(case, padded(max(sizes[i]), exactness), x, p),
        RAGGED: lambda i, x, p: by_rows(case, ragged(exactness), x, p),
        OURS: lambda i, x, p: ours(case, x, p, exactness, None),
    }
    for what in whats:
        ways = {name: functools.partial(call, what, layer) for name, layer in layers.items()}

        def want(x: jax.Array, own: None, operands: Any, what: str = what) -> Any:
            def exact(i: int, x: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
                return ours(case, x, p, jax.lax.Precision.HIGHEST, "reference")

            return call(what, exact, 0, *jax.tree.map(_float32, (x, operands)))

        own = [None] * plan.calls
        yield Comparison(OP, case.name, what, dtype, draw, want, operands, own, ways)


def _float32(value: jax.Array) -> jax.Array:
    return value.astype(jnp.float32)


def make_operands(case: MoeCase, kind: np.dtype) -> dict[str, jax.Array]:
    """The layer's parameters as `js.nn.linen.MoE` names them, and the cotangent "gy"."""
    into, out = (case.experts, case.d, case.hidden), (case.experts, case.hidden, case.d)
    gate = {"gate": normal(into, kind, 4, case.d**-0.5)} if case.activation == "swiglu" else {}
    return gate | {
        "router": normal((case.d, case.experts), kind, 1, case.d**-0.5),
        "up": normal(into, kind, 2, case.d**-0.5),
        "down": normal(out, kind, 3, case.hidden**-0.5),
        "gy": normal((case.tokens, case.d), kind, 5, case.tokens**-0.5),
    }


def call(what: str, layer: Layer, i: int, x: jax.Array, operands: dict[str, jax.Array]) -> Any:
    """The layer's result, or the gradients of the tokens and the parameters."""
    params = {k: v for k, v in operands.items() if k != "gy"}
    if what == "forward":
        return layer(i, x, params)
    return jax.vjp(functools.partial(layer, i), x, params)[1](operands["gy"])


def ours(
    case: MoeCase, x: jax.Array, p: dict[str, jax.Array], precision: Any, implementation: Any
) -> jax.Array:
    """What `js.nn.linen.MoE` and `js.nn.nnx.MoE` run."""
    options = moe.Options(
        case.top_k, case.activation, precision=precision, implementation=implementation
    )
    return moe.run(x, p, None, options)[0]


def routed(
    case: MoeCase, x: jax.Array, router: jax.Array
) -> tuple[jax.Array, jax.Array, jax.Array]:
    """(token of each sorted row, its weight, rows of each expert), in XLA's own operations."""
    probabilities = jax.nn.softmax(moe.route_logits(x, router, None), axis=-1)
    weights, ids = jax.lax.top_k(probabilities, case.top_k)
    if case.top_k > 1:
        weights = weights / weights.sum(1, keepdims=True)
    order = jnp.argsort(ids.reshape(-1), stable=True)
    sizes = jnp.zeros(case.experts, jnp.int32).at[ids.reshape(-1)].add(1)
    return order // case.top_k, weights.reshape(-1)[order], sizes


def routed_sizes(case: MoeCase, x: jax.Array, operands: dict[str, jax.Array]) -> list[int]:
    """Rows of each expert, on the host."""
    sizes = jax.jit(functools.partial(routed, case))(x, operands["router"])[2]
    return [int(n) for n in np.asarray(sizes)]


def by_rows(case: MoeCase, experts: Any, x: jax.Array, p: dict[str, jax.Array]) -> jax.Array:
    """Gather the rows by expert, `experts` on them, and the weighted sum at their tokens."""
    rows, weights, sizes = routed(case, x, p["router"])
    y = experts(x[rows], sizes, p, moe.ACTIVATIONS[case.activation])
    y = y.astype(jnp.float32) * weights[:, None]
    return jnp.zeros(x.shape, jnp.float32).at[rows].add(y).astype(x.dtype)


def network(product: Any, x: jax.Array, p: dict[str, jax.Array], act: Any) -> jax.Array:
    """One expert's two layers, or all of theirs, by a product of rows and weights."""
    h = product(x, p["up"])
    h = act(product(x, p["gate"])) * h if "gate" in p else act(h)
    return product(h, p["down"])


def one_by_one(sizes: Sequence[int], precision: Any) -> Any:
    """One expert after the other: unrolled where there are few."""
    few = len(sizes) < UNROLLED_EXPERTS
    return serial(sizes, precision) if few else scanned(max(sizes), precision)


def serial(sizes: Sequence[int], precision: Any) -> Any:
    """One expert after the other, each on its own rows."""
    starts = np.concatenate([[0], np.cumsum(sizes)])

    def run(x: jax.Array, _: jax.Array, p: dict[str, jax.Array], act: Any) -> jax.Array:
        weights = {k: v for k, v in p.items() if k != "router"}
        product = functools.partial(jnp.matmul, precision=precision)
        parts = [
            network(
                product, x[starts[e] : starts[e + 1]], {k: v[e] for k, v in weights.items()}, act
            )
            for e, size in enumerate(sizes)
            if size
        ]
        return jnp.concatenate(parts)

    return run


def scanned(longest: int, precision: Any) -> Any:
    """One expert after the other, each on a slice as long as the longest of them: what a step
    writes past its own rows the next one writes again.
    """

    def run(x: jax.Array, sizes: jax.Array, p: dict[str, jax.Array], act: Any) -> jax.Array:
        weights = {k: v for k, v in p.items() if k != "router"}
        product = functools.partial(jnp.matmul, precision=precision)
        wide = jnp.pad(x, ((0, longest), (0, 0)))

        def step(out: jax.Array, expert: Any) -> tuple[jax.Array, None]:
            start, own = expert
            rows = jax.lax.dynamic_slice_in_dim(wide, start, longest)
            y = network(product, rows, own, act)
            return jax.lax.dynamic_update_slice_in_dim(out, y, start, 0), None

        starts = jnp.cumsum(sizes) - sizes
        return jax.lax.scan(step, jnp.zeros_like(wide), (starts, weights))[0][: x.shape[0]]

    return run


def padded(longest: int, precision: Any) -> Any:
    """All experts in one batched product, each with as many rows as the longest."""

    def run(x: jax.Array, sizes: jax.Array, p: dict[str, jax.Array], act: Any) -> jax.Array:
        starts = jnp.cumsum(sizes) - sizes
        place = jnp.arange(longest)[None]
        rows = jnp.where(place < sizes[:, None], starts[:, None] + place, x.shape[0])
        wide = x.at[rows].get(mode="fill", fill_value=0)
        product = functools.partial(jnp.matmul, precision=precision)
        y = network(product, wide, p, act)
        flat = rows.reshape(-1)
        return jnp.zeros(x.shape, y.dtype).at[flat].set(y.reshape(-1, x.shape[1]), mode="drop")

    return run


def ragged(precision: Any) -> Any:
    """XLA's own grouped product."""

    def run(x: jax.Array, sizes: jax.Array, p: dict[str, jax.Array], act: Any) -> jax.Array:
        def product(rows: jax.Array, weights: jax.Array) -> jax.Array:
            return jax.lax.ragged_dot(rows, weights, sizes, precision=precision)

        return network(product, x, p, act)

    return run
