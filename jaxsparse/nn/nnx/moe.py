"""`js.nn.nnx.MoE`: a mixture of experts for flax.nnx."""

from __future__ import annotations

from typing import Any

import jax
import jax.numpy as jnp
from flax import nnx
from jax import Array
from jax.typing import DTypeLike

from jaxsparse.core.checks import check_positive
from jaxsparse.core.types import ExpertActivation
from jaxsparse.ffi import Implementation
from jaxsparse.nn import moe
from jaxsparse.nn.checks import check_rngs
from jaxsparse.nn.nnx.layer import Layer
from jaxsparse.nn.types import Initializer, RoutingRule


class MoE(moe.MoECall, Layer, nnx.Module):
    """A mixture of experts: each token goes through `top_k` of `num_experts` two-layer networks.
    It is dropless: there is no capacity that tokens could exceed.

    Parameters, all without bias: `router` [d, num_experts]; `up` [num_experts, d, hidden]; `down`
    [num_experts, hidden, d]; and with activation "swiglu" `gate` [num_experts, d, hidden]. An
    expert is `down(act(up(x)))`, with "swiglu" `down(silu(gate(x)) * up(x))`. Names and shapes are
    those of `js.nn.linen.MoE`.

    Args:
        in_features: d.
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
        router_init: initialiser of the router.
        kernel_init: initialiser of the experts.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.
        expert_axis: mesh axis, or a tuple of them, over which both the experts and the inputs are
            split, so that tokens are sent to their experts (`js.dispatch`); None: no token is sent.
            On one device it has no effect.
        rngs: `nnx.Rngs` that the parameters are drawn from.

    Raises:
        TypeError, ValueError: for a number, name or dtype that is not taken, naming the argument.
    """

    def __init__(
        self,
        in_features: int,
        num_experts: int,
        hidden: int,
        *,
        top_k: int = 1,
        activation: ExpertActivation = "swiglu",
        routing: RoutingRule = "top_k",
        normalize: bool | None = None,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        precision: jax.lax.PrecisionLike = None,
        router_init: Initializer = moe.ROUTER_INIT,
        kernel_init: Initializer = moe.EXPERTS_INIT,
        implementation: Implementation = None,
        expert_axis: str | tuple[str, ...] | None = None,
        rngs: nnx.Rngs,
    ) -> None:
        options = moe.Options(
            top_k, activation, routing, normalize, precision, implementation, expert_axis
        )
        num_experts, hidden, self.options = moe.check_options(
            num_experts, hidden, options, dtype=dtype, param_dtype=param_dtype
        )
        in_features = check_positive("in_features", in_features)
        check_rngs(rngs)
        shapes = moe.parameter_shapes(in_features, num_experts, hidden, activation)
        inits: dict[str, Any] = dict.fromkeys(shapes, kernel_init)
        inits["router"] = router_init
        made = {
            name: nnx.Param(inits[name](rngs.params(), shape, param_dtype))
            for name, shape in shapes.items()
        }
        self.router, self.up, self.down = made["router"], made["up"], made["down"]
        self.gate = made.get("gate")
        self.dtype = dtype

    def _options(self) -> moe.Options:
        return self.options

    def _experts(self, inputs: Array) -> dict[str, Array]:
        if inputs.shape[-1] != self.router.shape[0]:
            raise ValueError(f"inputs has shape {inputs.shape}; in_features={self.router.shape[0]}")
        found = {"router": self.router, "gate": self.gate, "up": self.up, "down": self.down}
        return {name: p[...] for name, p in found.items() if p is not None}
