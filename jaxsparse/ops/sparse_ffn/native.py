"""`sparse_ffn` and the products of its gradient on their native handlers."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.ffi import absent, ffi_call
from jaxsparse.ffi.register import native
from jaxsparse.ops.sparse_ffn.params import FfnParams
from jaxsparse.select.sparse_ffn.chooser import CHUNK, GROUP, ROOM


def few_tokens(
    p: FfnParams,
    platform: str,
    x: jax.Array,
    w_up: jax.Array,
    w_gate: jax.Array | None,
    w_down: jax.Array,
) -> jax.Array:
    """One call for all of [tokens, d] -> [tokens, d_out]."""
    top_k = p.top_k if p.top_k < w_down.shape[0] else 0
    sizes = x.shape[0], *w_down.shape
    scratch = native("cuda").sparse_ffn_workspace(*sizes) if platform == "cuda" else 0
    return ffi_call(
        "jaxsparse_sparse_ffn",
        [((x.shape[0], w_down.shape[1]), x.dtype), ((scratch,), np.uint8)],
        x,
        absent(None if p.transposed_up else w_up, x.dtype, (0, 0)),
        absent(w_gate, x.dtype, (0, 0)),
        w_down,
        absent(w_up if p.transposed_up else None, x.dtype, (0, 0)),
        squared=p.activation == "relu2",
        top_k=top_k,
    )[0]


def product(a: jax.Array, b: jax.Array) -> jax.Array:
    """One call for a @ b."""
    shape = (a.shape[0], b.shape[1])
    return ffi_call("jaxsparse_sparse_ffn_product", [(shape, a.dtype)], a, b)[0]


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True)
class Lists:
    """What is not zero in a matrix, on a GPU: a list for every GROUP rows and CHUNK columns
    (docs/contract.md).
    """

    ids: jax.Array
    values: jax.Array
    counts: jax.Array

    @property
    def active(self) -> jax.Array:
        """int32[]: entries that are not zero."""
        return jnp.sum(self.counts[..., 1], dtype=jnp.int32)

    @property
    def fit(self) -> jax.Array:
        """bool[]: every list has room for its columns."""
        return jnp.all(self.counts[..., 0] <= ROOM)


def lists(a: jax.Array, *, rectified: bool = False, squared: bool = False) -> Lists:
    """One call lists a, or relu(a), or its square."""
    places = -(-a.shape[0] // GROUP), -(-a.shape[1] // CHUNK)
    results = [
        ((*places, ROOM), np.uint16),
        ((*places, ROOM * GROUP), a.dtype),
        ((*places, 2), np.int32),
    ]
    return Lists(
        *ffi_call("jaxsparse_sparse_ffn_lists", results, a, rectified=rectified, squared=squared)
    )


def listed(
    h: Lists,
    w_down: jax.Array,
    rows: int,
    x: jax.Array | None = None,
    w_up_t: jax.Array | None = None,
) -> jax.Array:
    """One call for h @ w_down; with a gate h is first multiplied by x @ w_up_t^T where it is
    listed.
    """
    products = (0, 0, 0) if x is None else h.values.shape
    return ffi_call(
        "jaxsparse_sparse_ffn_listed",
        [((rows, w_down.shape[1]), w_down.dtype), (products, w_down.dtype)],
        h.ids,
        h.values,
        h.counts,
        w_down,
        absent(x, w_down.dtype, (0, 0)),
        absent(w_up_t, w_down.dtype, (0, 0)),
    )[0]
