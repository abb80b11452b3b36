"""`sparse_ffn` against XLA's dense products, at shares of zeros."""

from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp

from jaxsparse.bench.products.run import (
    Comparison,
    ProductPlan,
    check_whats,
    element_type,
    normal,
    precision,
)
from jaxsparse.ops import sparse_ffn
from jaxsparse.testing.ffn_cases import FfnCase

OP = "sparse_ffn"
ZEROS = (0.5, 0.8, 0.9, 0.95, 0.98, 0.99, 0.995)
WHATS = ("forward", "gradient")
DENSE, OURS, BY_ROWS = "XLA dense", "jaxsparse", "jaxsparse, transposed_up"


def comparisons(
    case: FfnCase,
    dtype: str,
    plan: ProductPlan,
    zeros: Sequence[float] = ZEROS,
    whats: Sequence[str] = WHATS[:1],
) -> Iterator[Comparison]:
    """One comparison a share of zeros and what is computed: the result, or the gradients of all
    operands. The result behind a gate by w_up [f, d], too.

    Args:
        case: sizes.
        dtype: one of `measure.dtypes.NAMES`.
        plan: how.
        zeros: shares of the activations that are zero, between 0 and 1.
        whats: of WHATS.

    Raises:
        ValueError: for a dtype or `what` that does not exist, or a share outside of 0 to 1.
    """
    kind = element_type(dtype)
    check_whats(whats, WHATS)
    for what in whats:
        for share in zeros:
            if not 0 < share < 1:
                raise ValueError(f"zeros={share}; it takes a share between 0 and 1")
            yield _comparison(case, dtype, kind, plan, share, what)


def _comparison(
    case: FfnCase, dtype: str, kind: Any, plan: ProductPlan, zeros: float, what: str
) -> Comparison:
    exactness = precision(dtype)
    first = normal((case.d, case.f), kind, 3, (case.d - 1) ** -0.5).at[0].set(case.bias(zeros))
    # Of what is not zero, so that results are about 1, which errors are measured by.
    operands = {"w_down": normal((case.f, case.d), kind, 2, (case.f * (1 - zeros)) ** -0.5)}
    if case.gated:
        operands |= {"w_gate": first, "w_up": normal((case.d, case.f), kind, 1, case.d**-0.5)}
    else:
        operands |= {"w_up": first}

    def dense(x: jax.Array, **w: jax.Array) -> jax.Array:
        up = jnp.dot(x, w["w_up"], precision=exactness)
        if not case.gated:
            return jnp.dot(jax.nn.relu(up), w["w_down"], precision=exactness)
        gate = jax.nn.relu(jnp.dot(x, w["w_gate"], precision=exactness))
        return jnp.dot(gate * up, w["w_down"], precision=exactness)

    def ours(x: jax.Array, **w: jax.Array) -> jax.Array:
        gate = w.get("w_gate")
        return sparse_ffn(x, w["w_up"], w["w_down"], w_gate=gate, precision=exactness)

    def by_rows(x: jax.Array, **w: jax.Array) -> jax.Array:
        options: dict[str, Any] = {"transposed_up": True, "precision": exactness}
        return sparse_ffn(x, w["w_up_t"], w["w_down"], w_gate=w["w_gate"], **options)

    def want(x: jax.Array, own: None, operands: Any) -> Any:
        # The products of the pre-activations are those of the operands' dtype, so that the
        # same activations are zero.
        if dtype in ("float32", "highest"):
            with jax.default_matmul_precision("highest"):
                return _run(what, dense, x, operands)
        return _run(what, dense, x, operands)

    ways: dict[str, Any] = {
        DENSE: lambda i, x, operands: _run(what, dense, x, operands),
        OURS: lambda i, x, operands: _run(what, ours, x, operands),
    }
    if case.gated and what == "forward":
        operands |= {"w_up_t": operands["w_up"].T}
        ways |= {BY_ROWS: lambda i, x, operands: _run(what, by_rows, x, operands)}
    return Comparison(
        OP,
        case.name,
        f"{what}, {100 * zeros:g} % zeros",
        dtype,
        lambda seed: normal((case.tokens, case.d), kind, 10 + seed).at[:, 0].set(1),
        want,
        operands,
        [None] * plan.calls,
        ways,
    )


def _run(what: str, network: Any, x: jax.Array, operands: Any) -> Any:
    """The result, or the gradients of its sum of sines, joined in one array."""
    if what == "forward":
        return network(x, **operands)

    def loss(x: jax.Array, operands: Any) -> jax.Array:
        return jnp.sin(network(x, **operands).astype(jnp.float32)).sum()

    found = jax.grad(loss, (0, 1))(x, operands)
    return jnp.concatenate([g.reshape(-1) for g in jax.tree.leaves(found)])
