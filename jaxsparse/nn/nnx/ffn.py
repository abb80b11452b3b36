"""`js.nn.nnx.SparseFFN`: a feed-forward network that skips zero activations, for flax.nnx."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.typing import DTypeLike

from jaxsparse.core.checks import check_positive
from jaxsparse.core.types import FfnActivation
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import named
from jaxsparse.nn import ffn
from jaxsparse.nn.checks import check_rngs
from jaxsparse.nn.nnx.layer import Layer
from jaxsparse.nn.types import Initializer


class SparseFFN(ffn.SparseFFNCall, Layer, nnx.Module):
    """A feed-forward network that skips the activations that are zero (`js.sparse_ffn`):
    `down(act(up(x)))`, or with a gate `down(act(gate(x)) * up(x))`.

    `up`, `down` and `gate` are `nnx.Linear(use_bias=False)` layers, so their state loads unchanged
    in both directions. `gate` is None where `gated` is False.

    Args:
        in_features: d, the width of the input.
        hidden: f, the number of activations of a token.
        features: width of the result; None: in_features.
        gated: whether there is a gate.
        activation: "relu", or "relu2": relu(v) ** 2.
        top_k: None, or how many activations a token keeps: those largest in absolute value.
        dtype: of the computation; None promotes inputs and parameters.
        param_dtype: of the parameters.
        precision: as in jax.lax.
        kernel_init: initialiser of the parameters.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.
        use_bias: False: there are no biases.
        rngs: `nnx.Rngs` that the parameters are drawn from.

    Raises:
        TypeError, ValueError: for a number, name or dtype that is not accepted, naming the
            argument.
    """

    def __init__(
        self,
        in_features: int,
        hidden: int,
        features: int | None = None,
        *,
        gated: bool = False,
        activation: FfnActivation = "relu",
        top_k: int | None = None,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        precision: jax.lax.PrecisionLike = None,
        kernel_init: Initializer = ffn.KERNEL_INIT,
        implementation: Implementation = None,
        use_bias: bool = False,
        rngs: nnx.Rngs,
    ) -> None:
        in_features = check_positive("in_features", in_features)
        ffn.check_layer(
            hidden,
            features,
            gated=gated,
            activation=activation,
            top_k=top_k,
            precision=precision,
            dtype=dtype,
            param_dtype=param_dtype,
            implementation=implementation,
            use_bias=use_bias,
        )
        check_rngs(rngs)

        def linear(n_in: int, n_out: int) -> nnx.Linear:
            return nnx.Linear(
                n_in,
                n_out,
                use_bias=False,
                param_dtype=param_dtype,
                kernel_init=kernel_init,
                rngs=rngs,
            )

        self.up = linear(in_features, hidden)
        self.down = linear(hidden, features or in_features)
        self.gate = linear(in_features, hidden) if gated else None
        self.activation: FfnActivation = activation
        self.top_k, self.dtype, self.precision = top_k, dtype, precision
        self.implementation: Implementation = named(implementation)

    def _kernels(self, inputs: Array) -> list[Array]:
        in_features = self.up.kernel.shape[0]
        if inputs.shape[-1] != in_features:
            raise ValueError(f"inputs has shape {inputs.shape}; in_features={in_features}")
        layers = [self.up, self.down, *([] if self.gate is None else [self.gate])]
        return [layer.kernel[...] for layer in layers]
