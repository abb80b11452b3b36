"""`js.nn.linen.MoE`: a mixture of experts for flax.linen."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen
from flax.linen.dtypes import promote_dtype
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float

from jaxsparse.core.types import ExpertActivation
from jaxsparse.ffi import Implementation
from jaxsparse.nn import moe
from jaxsparse.nn.types import Initializer, RoutingRule


class MoE(linen.Module):
    """A mixture of experts: each token goes through `top_k` of `num_experts` two-layer networks.
    Dropless.

    Parameters, all without bias: `router` [d, num_experts]; `up` [num_experts, d, hidden]; `down`
    [num_experts, hidden, d]; and with activation "swiglu" `gate` [num_experts, d, hidden]. An
    expert is `down(act(up(x)))`, with "swiglu" `down(silu(gate(x)) * up(x))`.

    Attributes:
        num_experts: how many experts there are.
        hidden: width of an expert's hidden layer.
        top_k: experts of a token, 1 or more.
        activation: "swiglu" (default), "relu", "gelu" or "silu".
        routing: "top_k": each token takes its best experts. "expert_choice": each expert takes its
            best `ceil(tokens * top_k / num_experts)` tokens, of the tokens that count.
        normalize: divide the weights of a token's experts by their sum; None: where top_k > 1. Not
            for "expert_choice".
        dtype: of the computation; None promotes inputs and parameters.
        param_dtype: of the parameters.
        precision: of the experts' products, as in jax.lax; the router is always float32.
        router_init, kernel_init: initialisers of the router and of the experts.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Raises:
        TypeError, ValueError: when it is called with a number, name or dtype that is not taken,
            naming the argument.
    """

    num_experts: int
    hidden: int
    top_k: int = 1
    activation: ExpertActivation = "swiglu"
    routing: RoutingRule = "top_k"
    normalize: bool | None = None
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    precision: jax.lax.PrecisionLike = None
    router_init: Initializer = moe.ROUTER_INIT
    kernel_init: Initializer = moe.EXPERTS_INIT
    implementation: Implementation = None

    @linen.compact
    def __call__(
        self,
        inputs: Float[ArrayLike, "*batch d"],
        mask: Bool[ArrayLike, "*batch"] | None = None,
    ) -> tuple[Float[Array, "*batch d"], Float[Array, ""]]:
        """The mixture, and the loss that keeps it balanced.

        Args:
            inputs: float32, bfloat16 or float16 [*batch, d].
            mask: bool[*batch]: tokens that count; the others are not read and give zero.
                None: all of them.

        Returns:
            ([*batch, d], load-balance loss float32[]: 1 when balanced, more otherwise; 0 for
            "expert_choice").

        Raises:
            TypeError, ValueError: for a wrong shape, dtype or option, naming the argument.
        """
        options = moe.Options(
            self.top_k,
            self.activation,
            self.routing,
            self.normalize,
            self.precision,
            self.implementation,
        )
        num_experts, hidden, options = moe.check_options(
            self.num_experts,
            self.hidden,
            options,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
        )
        moe.check_inputs(inputs, mask)
        inputs = jnp.asarray(inputs)
        shapes = moe.parameter_shapes(inputs.shape[-1], num_experts, hidden, self.activation)
        inits: dict[str, Any] = dict.fromkeys(shapes, self.kernel_init)
        inits["router"] = self.router_init
        params = {
            name: self.param(name, inits[name], shape, self.param_dtype)
            for name, shape in shapes.items()
        }
        experts = [name for name in params if name != "router"]
        arrays = (inputs, *(params[name] for name in experts))
        x, *promoted = promote_dtype(*arrays, dtype=self.dtype)
        return moe.run(
            x,  # pyright: ignore[reportArgumentType]
            params | dict(zip(experts, promoted, strict=True)),
            mask,
            options,
        )
