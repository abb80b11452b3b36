"""`masked_matmul`: the public function. Checks at trace time, then hands arrays to the
differentiable core.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Mapping, Sequence
from typing import Any, Literal, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float

from jaxsparse.core.checks import (
    as_array,
    canonical_precision,
    check_array,
    check_float,
    check_offsets,
    check_same_dtype,
    result_dtype,
)
from jaxsparse.core.debugging import uninspected
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation, lift
from jaxsparse.ffi.platform import implementation_key, plan
from jaxsparse.ffi.whole import first_axis_alone
from jaxsparse.ops.masked_matmul.blocks import (
    BlockCount,
    check_density,
    check_mask,
    granularities,
    share,
)
from jaxsparse.ops.masked_matmul.core import MatmulParams, product
from jaxsparse.ops.masked_matmul.run import OFFERED, block_counts, describe
from jaxsparse.select.explain import record, watched
from jaxsparse.select.masked_matmul import OP
from jaxsparse.select.work import result, work

#: What a block size is of.
Operand = Literal["a", "b", "out"]


@takes_variables
def masked_matmul(
    a: Float[ArrayLike, "*batch m k"],
    b: Float[ArrayLike, "*batch k n"],
    *,
    a_mask: Bool[ArrayLike, "*batch rows columns"] | None = None,
    b_mask: Bool[ArrayLike, "*batch rows columns"] | None = None,
    out_mask: Bool[ArrayLike, "*batch rows columns"] | None = None,
    granularity: tuple[int, int] | Mapping[Operand, tuple[int, int]] = (1, 1),
    precision: jax.lax.PrecisionLike = None,
    preferred_element_type: DTypeLike | None = None,
    density: float | None = None,
    implementation: Implementation = None,
) -> Float[Array, "*batch m n"]:
    """A matrix product in which blocks of the operands are zero and blocks of the result are not
    wanted.

    `out_mask * ((a_mask * a) @ (b_mask * b))`; a mask has one bool for each block of its matrix.
    Masked entries of an operand count as zero and are never read into a product (they may hold
    NaN); masked entries of the result are zero. A NaN in an unmasked entry of b may or may not
    reach the rows whose `a_mask` leaves out its column of a, and vice versa: that depends on
    the implementation and its tiles. Differentiable in a and b, and the gradients skip
    the same blocks: that of a is computed only where `a_mask` holds.

    Args:
        a: float32, bfloat16 or float16 [*batch, m, k].
        b: same dtype as a, [*batch, k, n]; leading axes broadcast as in `jnp.matmul`.
        a_mask: bool[*batch, ceil(m/gm), ceil(k/gk)]; None keeps every block. Leading axes
            broadcast.
        b_mask: bool[*batch, ceil(k/gm), ceil(n/gk)], likewise.
        out_mask: bool[*batch, ceil(m/gm), ceil(n/gk)], likewise.
        granularity: (rows, columns) of a block, 1 or more: one pair for every mask, or a mapping
            from "a", "b" and "out" to pairs. Rows that count per product (lengths):
            `js.lengths_mask(lengths, m)[..., None]` with granularity (1, k).
        precision: as in jax.lax.
        preferred_element_type: the result's dtype: a's dtype (default) or float32. Sums are
            float32 in any case.
        density: roughly the share of the masks' blocks that are kept, where it is known when this
            is traced (a pruning schedule); the result does not depend on it. On a GPU the dense
            product of the masked operands runs where it is faster at this share. The value is
            rounded to the nearest twentieth, below .05 to one of nine shares from .001 to .03, so
            different values cause at most thirty traces.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        [*batch, m, n].

    Raises:
        TypeError, ValueError: for a wrong rank, shape, dtype or option, naming the argument;
            ValueError when a named implementation cannot run.
    """
    masks, options = (a_mask, b_mask, out_mask), (precision, preferred_element_type, density)
    product_of = prepare(OP, a, b, masks, granularity, *options, implementation)
    product_of.tell()
    return product_of.run()


class Prepared(NamedTuple):
    """A call whose arguments are checked: a, b and the masks of `flat` have one leading axis; the
    result is `shape`, `sizes` the (m, k, n) of a product.
    """

    params: MatmulParams
    flat: list[jax.Array | None]
    shape: tuple[int, ...]
    sizes: tuple[int, int, int]
    shapes: str
    implementations: dict[str, str]

    def tell(self) -> None:
        """Note the call for `js.explain`."""
        p, flat = self.params, self.flat
        if not watched():
            return
        a, b, masks = cast(jax.Array, flat[0]), cast(jax.Array, flat[1]), flat[2:]
        multiplied = math.prod(self.shape[:-2]) * math.prod(self.sizes)
        record(
            p.called,
            self.shapes,
            self.implementations,
            lambda name: describe(p, name, a, b, masks),
            BlockCount(*block_counts(*masks)),
            "blocks",
            lambda: work(multiplied, *flat, result(self.shape, np.dtype(p.out_dtype))),
        )

    def run(self) -> jax.Array:
        """The result."""
        out = _run(self.params, *lift(*self.flat))
        return (out[0] if out.shape[0] == 1 else out).reshape(self.shape)


def prepare(
    called: str,
    a: ArrayLike,
    b: ArrayLike,
    given_masks: Sequence[ArrayLike | None],
    granularity: tuple[int, int] | Mapping[Operand, tuple[int, int]],
    precision: jax.lax.PrecisionLike,
    preferred_element_type: DTypeLike | None,
    density: float | None,
    implementation: Implementation,
) -> Prepared:
    """The checked arguments of `masked_matmul`, for the op that the user called."""
    for name, value in (("a", a), ("b", b)):
        check_array(name, value, least=2)
    a, b = as_array("a", a), as_array("b", b)
    check_float("a", a)
    check_same_dtype("b", b, "a", a)
    (m, k), n = a.shape[-2:], b.shape[-1]
    if b.shape[-2] != k:
        raise ValueError(f"b has shape {b.shape}; a {a.shape} needs [..., {k}, n]")
    blocks = granularities(granularity)
    masks = [
        check_mask(name, mask, size, block)
        for name, mask, size, block in zip(
            ("a_mask", "b_mask", "out_mask"),
            given_masks,
            ((m, k), (k, n), (m, n)),
            blocks,
            strict=True,
        )
    ]
    named = {"a": a, "b": b, "a_mask": masks[0], "b_mask": masks[1], "out_mask": masks[2]}
    batch = _batch({name: v.shape[:-2] for name, v in named.items() if v is not None})
    out_dtype = result_dtype(preferred_element_type, a.dtype)
    check_offsets("a", a.shape)
    check_offsets("b", b.shape)
    check_offsets("the result", (*batch, m, n))
    implementations = plan(called, implementation, OFFERED)
    params = MatmulParams(
        blocks,
        canonical_precision(precision),
        out_dtype.name,
        implementation_key(implementation),
        density=check_density(density),
        called=called,
    )
    flat = [None if v is None else _flatten(name, v, batch) for name, v in named.items()]
    flat = uninspected(share)(flat, blocks)
    shapes = f"{a.dtype.name}{list(a.shape)} * {list(b.shape)} -> {[*batch, m, n]}"
    return Prepared(params, flat, (*batch, m, n), (m, k, n), shapes, implementations)


@functools.partial(jax.jit, static_argnums=0)
def _run(
    params: MatmulParams,
    a: jax.Array,
    b: jax.Array,
    a_mask: jax.Array | None,
    b_mask: jax.Array | None,
    out_mask: jax.Array | None,
) -> Any:
    return product(params, a, b, a_mask, b_mask, out_mask)


def _batch(shapes: Mapping[str, tuple[int, ...]]) -> tuple[int, ...]:
    try:
        return np.broadcast_shapes(*shapes.values())
    except ValueError as error:
        told = ", ".join(f"{name} {shape}" for name, shape in shapes.items())
        raise ValueError(f"leading axes do not broadcast: {told}") from error


@uninspected
def _flatten(name: str, value: jax.Array, batch: tuple[int, ...]) -> jax.Array:
    """[..., r, c] as [L, r, c], or as [1, r, c] when every product shares it."""
    if math.prod(value.shape[:-2]) == 1:
        return value.reshape(1, *value.shape[-2:])
    shape = (*batch, *value.shape[-2:])
    value = first_axis_alone(OP, name, value, 2)
    return jnp.broadcast_to(value, shape).reshape(math.prod(batch), *value.shape[-2:])
