"""`sparse_ffn`: the public function. Checks at trace time, then hands arrays to the core."""

from __future__ import annotations

import functools
import math
from typing import Any, get_args

import jax
from jax.typing import ArrayLike
from jaxtyping import Array, Float

from jaxsparse.core.checks import (
    as_array,
    canonical_precision,
    check_array,
    check_bool,
    check_float,
    check_offsets,
    check_positive,
    check_rank,
    check_same_dtype,
)
from jaxsparse.core.device import home_platform
from jaxsparse.core.symbolic import in_pieces, is_symbolic
from jaxsparse.core.types import FfnActivation
from jaxsparse.core.variables import takes_variables
from jaxsparse.ffi import Implementation, lift
from jaxsparse.ffi.platform import implementation_key, plan
from jaxsparse.ffi.whole import first_axis_alone
from jaxsparse.ops.sparse_ffn.core import apply
from jaxsparse.ops.sparse_ffn.params import FfnParams
from jaxsparse.ops.sparse_ffn.run import OFFERED, active, describe
from jaxsparse.select.explain import Counted, record
from jaxsparse.select.work import Work, result, work


@takes_variables
def sparse_ffn(
    x: Float[ArrayLike, "*batch d"],
    w_up: Float[ArrayLike, "_ _"],
    w_down: Float[ArrayLike, "f d_out"],
    *,
    w_gate: Float[ArrayLike, "d f"] | None = None,
    activation: FfnActivation = "relu",
    top_k: int | None = None,
    transposed_up: bool = False,
    precision: jax.lax.PrecisionLike = None,
    implementation: Implementation = None,
) -> Float[Array, "*batch d_out"]:
    """A feed-forward network that skips the activations that are zero: `h @ w_down` with
    `h = act(x @ w_up)`, or with a gate `h = act(x @ w_gate) * (x @ w_up)`.

    Every activation that is not zero counts, so the result equals that of the dense products up to
    the order of sums. The zeros are found on the device while h is computed.

    With few tokens (up to 4 on a CPU, 16 there in 16-bit dtypes; up to 8 on a GPU, without top_k)
    only the rows of w_down that some token needs are read; with a gate, columns of w_up whose gate
    is zero for every token are skipped as well where memory allows it. With more tokens XLA
    computes the first product. Zeros are skipped after it on a CPU where at most 3 % of the
    activations are not zero. Otherwise dense products run, and on a GPU always: there
    `js.config(variant="lists")` skips zeros in 16-bit dtypes, except in gradients. `js.explain`
    says which ran, and how many activations were not zero.

    Differentiable in all arrays. The backward pass has the same zeros: an activation where act is
    0, or that top_k leaves out, does not pass a gradient on. Rows of w_down, and columns of w_up
    behind a gate, that every token skips may or may not be read: where they hold NaN or infinity,
    the result may, too.

    Args:
        x: float32, bfloat16 or float16 [*batch, d], one axis or more. The tokens are the leading
            axes.
        w_up: same dtype, [d, f], or [f, d] with transposed_up.
        w_down: same dtype, [f, d_out].
        w_gate: same dtype, [d, f]; None: no gate.
        activation: "relu", or "relu2": relu(v) ** 2.
        top_k: None, or how many entries of h each token keeps: those largest in absolute value, and
            among equal ones those of lower index. NaN counts as infinite.
        transposed_up: w_up is [f, d], a row for each activation. Behind a gate and with few tokens
            on a CPU only the rows whose gate is open are read; of [d, f] it is whole cache lines,
            which at 10 % open gates hold most of the matrix. On a GPU dense products run with few
            tokens then.
        precision: as in jax.lax. By default XLA may multiply float32 in TF32 on a GPU.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Returns:
        [*batch, d_out] in the dtype of x. Products are summed in float32. `x @ w_up`, `x @ w_gate`
        and h are rounded to the dtype of x.

    Raises:
        TypeError, ValueError: for a wrong rank, shape, dtype or option, naming the argument;
            ValueError when a named implementation cannot run.
    """
    if is_symbolic(x):
        options: dict[str, Any] = {
            "w_gate": w_gate,
            "activation": activation,
            "top_k": top_k,
            "transposed_up": transposed_up,
            "precision": precision,
            "implementation": implementation,
        }
        part = functools.partial(sparse_ffn, w_up=w_up, w_down=w_down, **options)
        size = 1024 if len(x.shape) == 2 else 8  # pyright: ignore[reportAttributeAccessIssue]
        found: jax.Array = in_pieces(
            lambda x: part(x), {"x": x}, size, rest="weights have one number of rows"
        )
        return found
    check_array("x", x, least=1)
    x = as_array("x", x)
    check_float("x", x)
    depth = x.shape[-1]
    transposed_up = check_bool("transposed_up", transposed_up)
    sides = (None, depth) if transposed_up else (depth, None)
    needs = f"[f, {depth}] with transposed_up" if transposed_up else f"[{depth}, f]"
    if getattr(w_up, "shape", ())[1 - sides.index(depth) :][:1] == (depth,):
        needs += f": transposed_up={not transposed_up} takes this one"
    w_up = _weight("w_up", w_up, x, sides, f"x {x.shape} needs {needs}")
    hidden = w_up.shape[0 if transposed_up else 1]
    if w_gate is not None:
        needs = f"it takes ({depth}, {hidden}), by x and w_up"
        w_gate = _weight("w_gate", w_gate, x, (depth, hidden), needs)
    needs = f"w_up {w_up.shape} needs [{hidden}, d_out]"
    w_down = _weight("w_down", w_down, x, (hidden, None), needs)
    top_k = check_options(activation, top_k)
    batch, outputs = x.shape[:-1], w_down.shape[1]
    tokens = math.prod(batch)
    for name, width in (("x", depth), ("h", hidden), ("the result", outputs)):
        check_offsets(name, (tokens, width))
    implementations = plan("sparse_ffn", implementation, OFFERED)
    params = FfnParams(
        activation,
        0 if top_k is None or top_k >= hidden else top_k,
        canonical_precision(precision),
        implementation_key(implementation),
        transposed_up,
    )
    here = implementations.get(home_platform())
    flat = first_axis_alone("sparse_ffn", "x", x, 1).reshape(tokens, depth)
    operands = (flat, w_up, w_gate, w_down)
    record(
        "sparse_ffn",
        f"{x.dtype.name}{list(x.shape)} -> {hidden} -> {[*batch, outputs]}",
        implementations,
        lambda name: describe(params, name, *operands),
        lambda: Counted(tokens * hidden, active(params, here, *operands)),
        "activations",
        lambda: _work(*operands),
    )
    return _run(params, *lift(*operands)).reshape(*batch, outputs)


def check_options(activation: object, top_k: object) -> int | None:
    """`top_k` as an int or None; the activation is one of two.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    if not isinstance(activation, str) or activation not in get_args(FfnActivation):
        raise ValueError(f"activation={activation!r}; it takes 'relu' or 'relu2'")
    return None if top_k is None else check_positive("top_k", top_k)


def _weight(
    name: str, value: Any, x: jax.Array, shape: tuple[int | None, ...], needs: str
) -> jax.Array:
    """`value` as a matrix of x's dtype and this shape, None in which is any size."""
    check_rank(name, value, 2)
    array = as_array(name, value)
    check_same_dtype(name, array, "x", x)
    if any(want not in (None, size) for size, want in zip(array.shape, shape, strict=True)):
        raise ValueError(f"{name} has shape {array.shape}; {needs}")
    return array


def _work(x: jax.Array, w_up: jax.Array, w_gate: jax.Array | None, w_down: jax.Array) -> Work:
    """With no activation zero."""
    tokens, depth = x.shape
    hidden, outputs = w_down.shape
    firsts = 1 if w_gate is None else 2
    out = result((tokens, outputs), x.dtype)
    return work(tokens * hidden * (firsts * depth + outputs), x, w_up, w_gate, w_down, out)


@functools.partial(jax.jit, static_argnums=0)
def _run(
    params: FfnParams,
    x: jax.Array,
    w_up: jax.Array,
    w_gate: jax.Array | None,
    w_down: jax.Array,
) -> jax.Array:
    return apply(params, x, w_up, w_gate, w_down)
