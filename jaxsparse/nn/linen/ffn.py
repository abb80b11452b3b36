"""`js.nn.linen.SparseFFN`: a feed-forward network that skips zero activations, for flax.linen."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen
from jax.typing import DTypeLike

from jaxsparse.core.types import FfnActivation
from jaxsparse.ffi import Implementation
from jaxsparse.nn import ffn
from jaxsparse.nn.linen.layer import Layer
from jaxsparse.nn.types import Initializer


class _Kernel(linen.Module):
    """The parameter of a `linen.Dense` without a bias."""

    shape: tuple[int, int]
    draw: Initializer
    dtype: DTypeLike

    @linen.compact
    def __call__(self) -> jax.Array:
        return self.param("kernel", self.draw, self.shape, self.dtype)


class SparseFFN(ffn.SparseFFNCall, Layer, linen.Module):
    """A feed-forward network that skips the activations that are zero (`js.sparse_ffn`):
    `down(act(up(x)))`, or with a gate `down(act(gate(x)) * up(x))`.

    The parameters are those of `linen.Dense(use_bias=False)` layers with the names `up`, `down` and
    `gate`, so checkpoints load unchanged in both directions.

    Attributes:
        hidden: f, the number of activations of a token.
        features: width of the result; None: that of the input.
        gated: whether there is a gate.
        activation: "relu", or "relu2": relu(v) ** 2.
        top_k: None, or how many activations a token keeps: those largest in absolute value.
        dtype: of the computation; None promotes inputs and parameters.
        param_dtype: of the parameters.
        precision: as in jax.lax.
        kernel_init: initialiser of the parameters.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.
        use_bias: False: there are no biases.

    Raises:
        TypeError, ValueError: for a number, name or dtype that is not accepted, naming the
            argument, when the layer is constructed.
    """

    hidden: int
    features: int | None = None
    gated: bool = False
    activation: FfnActivation = "relu"
    top_k: int | None = None
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    precision: jax.lax.PrecisionLike = None
    kernel_init: Initializer = ffn.KERNEL_INIT
    implementation: Implementation = None
    use_bias: bool = False

    def __post_init__(self) -> None:
        ffn.check_layer(
            self.hidden,
            self.features,
            gated=self.gated,
            activation=self.activation,
            top_k=self.top_k,
            precision=self.precision,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
            implementation=self.implementation,
            use_bias=self.use_bias,
        )
        super().__post_init__()

    def _kernels(self, inputs: jax.Array) -> list[jax.Array]:
        width = inputs.shape[-1]
        shapes = {"up": (width, self.hidden), "down": (self.hidden, self.features or width)}
        if self.gated:
            shapes["gate"] = shapes["up"]
        return [
            _Kernel(shape, self.kernel_init, self.param_dtype, name=name)()
            for name, shape in shapes.items()
        ]
