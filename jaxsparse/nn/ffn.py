"""What the two `SparseFFN` layers share: the checks of options and inputs, and the call."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Float

from jaxsparse.core.checks import canonical_precision, check_bool, check_positive
from jaxsparse.core.types import FfnActivation
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import wishes
from jaxsparse.nn.checks import check_array, check_dtypes, check_width
from jaxsparse.nn.types import Initializer
from jaxsparse.ops.sparse_ffn.api import check_options, sparse_ffn

#: The initialiser of flax's dense kernels.
KERNEL_INIT: Initializer = jax.nn.initializers.lecun_normal()


def check_layer(
    hidden: int,
    features: int | None,
    *,
    gated: bool,
    activation: FfnActivation,
    top_k: int | None,
    precision: jax.lax.PrecisionLike,
    dtype: DTypeLike | None,
    param_dtype: DTypeLike,
    implementation: Implementation,
    use_bias: bool,
) -> None:
    """Check the options of a layer.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    check_positive("hidden", hidden)
    if features is not None:
        check_positive("features", features)
    check_bool("gated", gated)
    check_bool("use_bias", use_bias)
    if use_bias:
        raise ValueError(
            "use_bias=True; SparseFFN has no biases. Add that of `down` to the result; for that of "
            "`up` or `gate`, append a 1 to the inputs and the bias as a last row to the kernel"
        )
    check_options(activation, top_k)
    canonical_precision(precision)
    check_dtypes(dtype=dtype, param_dtype=param_dtype)
    wishes(implementation)


def check_inputs(inputs: Any) -> None:
    """Check the inputs of a call.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    check_array("inputs", inputs, "d")
    check_width("inputs", inputs)


class SparseFFNCall:
    """The call of both layers."""

    def __call__(self, inputs: Float[ArrayLike, "*batch d"]) -> Float[Array, "*batch features"]:
        """Apply the network to every token.

        Args:
            inputs: float32, bfloat16 or float16 [*batch, d].

        Returns:
            [*batch, features] in the promoted dtype.

        Raises:
            TypeError, ValueError: for a wrong shape or dtype, naming the argument.
        """
        layer: Any = self
        check_inputs(inputs)
        inputs = jnp.asarray(inputs)
        x, up, down, *gate = layer._promoted(inputs, *layer._kernels(inputs))
        return sparse_ffn(
            x,
            up,
            down,
            w_gate=gate[0] if gate else None,
            activation=layer.activation,
            top_k=layer.top_k,
            precision=layer.precision,
            implementation=layer.implementation,
        )
