"""`pruned_matmul` and `pruned_conv` against XLA's dense operations and BCOO."""

import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Literal

import jax
import jax.numpy as jnp
import numpy as np
from jax.experimental import sparse as jax_sparse

from jaxsparse.bench.products.run import (
    Comparison,
    ProductPlan,
    element_type,
    normal,
    platform_name,
    precision,
)
from jaxsparse.ops import pruned_conv, pruned_matmul
from jaxsparse.pruned import inspect
from jaxsparse.select import config, variants
from jaxsparse.testing.pruned_cases import PrunedCase, PrunedConvCase, pruned_weight

SPARSITIES = (0.7, 0.9, 0.95)
DENSE, OURS = "XLA dense", "jaxsparse"
CONV_AXES = ("NHWC", "HWIO", "NHWC")


def comparisons(
    case: PrunedCase,
    dtype: str,
    plan: ProductPlan,
    sparsities: Sequence[float] = SPARSITIES,
    executors: Sequence[str] = (),
) -> Iterator[Comparison]:
    """One comparison a sparsity: the weight, of random pattern, is inspected before the timing and
    a constant of the jitted chain, as the dense one is.

    Args:
        case: sizes; its type says which op.
        dtype: one of `measure.dtypes.NAMES`.
        plan: how.
        sparsities: shares of the weights that are pruned.
        executors: variants to demand beside the one that is chosen.

    Raises:
        ValueError: for a dtype or an executor that does not exist, or a sparsity outside 0 to 1.
    """
    op = op_of(case)
    kind, exactness = element_type(dtype), precision(dtype)
    known = dict.fromkeys(v.name for v in variants(op) if v.platform == platform_name())
    for name in executors:
        if name not in known:
            raise ValueError(f"variant={name!r} of {op} is not one of {', '.join(known)}")
    for sparsity in sparsities:
        if not 0 <= sparsity <= 1:
            raise ValueError(f"sparsity={sparsity}; it takes 0 to 1")
        weight = pruned_weight(case, sparsity)
        ways = {DENSE: _dense(case, jnp.asarray(weight, kind), exactness)}
        ways |= {
            name or OURS: _pruned(case, weight.astype(kind), exactness, name)
            for name in ("", *executors)
        }
        if plan.rivals and op == "pruned_matmul" and sparsity >= 0.9:
            ways["BCOO"] = _bcoo(weight.astype(kind), exactness)
        want = _dense(case, jnp.asarray(weight.astype(kind), jnp.float32), "highest")
        yield Comparison(
            op,
            case.name,
            f"{100 * sparsity:g} % of the weights pruned",
            dtype,
            functools.partial(_draw, case, kind),
            functools.partial(_want, want),
            None,
            [None] * plan.calls,
            ways,
        )


def op_of(case: PrunedCase) -> Literal["pruned_conv", "pruned_matmul"]:
    """The op that a case is of."""
    return "pruned_conv" if isinstance(case, PrunedConvCase) else "pruned_matmul"


Way = Callable[[int, jax.Array, Any], jax.Array]


def _draw(case: PrunedCase, kind: np.dtype, seed: int) -> jax.Array:
    return normal(case.x_shape, kind, 10 + seed)


def _want(dense: Way, x: jax.Array, own: None, operands: None) -> jax.Array:
    return dense(0, x.astype(jnp.float32), operands)


def _dense(case: PrunedCase, weight: jax.Array, exactness: Any) -> Way:
    """XLA's operation on the whole weight."""

    def product(i: int, x: jax.Array, operands: None) -> jax.Array:
        if not isinstance(case, PrunedConvCase):
            return jnp.matmul(x, weight, precision=exactness)
        strides = (case.stride, case.stride)
        return jax.lax.conv_general_dilated(
            x, weight, strides, "SAME", dimension_numbers=CONV_AXES, precision=exactness
        )

    return product


def _pruned(case: PrunedCase, weight: np.ndarray, exactness: Any, name: str) -> Way:
    """Ours, by the executor of that name; "" is the one that is chosen."""
    conv = isinstance(case, PrunedConvCase)
    frozen = inspect(weight, kind="conv" if conv else "matmul")

    def product(i: int, x: jax.Array, operands: None) -> jax.Array:
        with config(variant=name or None):
            if isinstance(case, PrunedConvCase):
                return pruned_conv(x, frozen, strides=case.stride, precision=exactness)
            return pruned_matmul(x, frozen, precision=exactness)

    return product


def _bcoo(weight: np.ndarray, exactness: Any) -> Way:
    """`jax.experimental.sparse`'s product: the kept weights, transposed, times x transposed."""
    sparse: Any = jax_sparse.BCOO.fromdense(jnp.asarray(weight.T))

    def product(i: int, x: jax.Array, operands: None) -> jax.Array:
        axes = (((1,), (1,)), ((), ()))
        out: Any = jax_sparse.bcoo_dot_general(
            sparse, x, dimension_numbers=axes, precision=exactness
        )
        return out.T

    return product
