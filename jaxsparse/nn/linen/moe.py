"""`js.nn.linen.MoE`: a mixture of experts for flax.linen."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen
from jax.typing import DTypeLike

from jaxsparse.core.types import ExpertActivation
from jaxsparse.ffi import Implementation
from jaxsparse.nn import moe
from jaxsparse.nn.linen.layer import Layer
from jaxsparse.nn.types import Initializer, RoutingRule


class MoE(moe.MoECall, Layer, linen.Module):
    """A mixture of experts: each token goes through `top_k` of `num_experts` two-layer networks.
    It is dropless: there is no capacity that tokens could exceed.

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
        expert_axis: mesh axis, or a tuple of them, over which both the experts and the inputs are
            split, so that tokens are sent to their experts (`js.dispatch`); None: no token is sent.
            On one device it has no effect.

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
    expert_axis: str | tuple[str, ...] | None = None

    def _options(self) -> moe.Options:
        options = moe.Options(
            self.top_k,
            self.activation,
            self.routing,
            self.normalize,
            self.precision,
            self.implementation,
            self.expert_axis,
        )
        types = {"dtype": self.dtype, "param_dtype": self.param_dtype}
        return moe.check_options(self.num_experts, self.hidden, options, **types)[2]

    def _experts(self, inputs: jax.Array) -> dict[str, jax.Array]:
        sizes = inputs.shape[-1], int(self.num_experts), int(self.hidden)
        return {
            name: self.param(
                name,
                self.router_init if name == "router" else self.kernel_init,
                shape,
                self.param_dtype,
            )
            for name, shape in moe.parameter_shapes(*sizes, self.activation).items()
        }
