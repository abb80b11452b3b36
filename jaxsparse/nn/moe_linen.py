"""`js.nn.linen.MoE`: a mixture of experts for flax.linen."""

from typing import Any

import jax
import jax.numpy as jnp
from flax import linen
from flax.linen.dtypes import promote_dtype
from jaxtyping import Array, Bool, Float

from jaxsparse.ffi import Implementation
from jaxsparse.nn import moe

EXPERTS_INIT = jax.nn.initializers.lecun_normal(batch_axis=(0,))


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
            best `ceil(tokens * top_k / num_experts)` tokens.
        normalize: divide the weights of a token's experts by their sum; None: where top_k > 1. Not
            for "expert_choice".
        dtype: of the computation; None promotes inputs and parameters.
        param_dtype: of the parameters.
        precision: of the experts' products, as in jax.lax; the router is always float32.
        router_init, kernel_init: initialisers of the router and of the experts.
        implementation: None (best available), "cpu", "reference", or a sequence of them.

    Raises:
        ValueError: when it is called with a number or a name that does not exist, naming the
            argument.
    """

    num_experts: int
    hidden: int
    top_k: int = 1
    activation: str = "swiglu"
    routing: str = "top_k"
    normalize: bool | None = None
    dtype: Any = None
    param_dtype: Any = jnp.float32
    precision: Any = None
    router_init: Any = jax.nn.initializers.lecun_normal()
    kernel_init: Any = EXPERTS_INIT
    implementation: Implementation = None

    @linen.compact
    def __call__(
        self, inputs: Float[Array, "*batch d"], token_mask: Bool[Array, "*batch"] | None = None
    ) -> tuple[Float[Array, "*batch d"], Float[Array, ""]]:
        """The mixture, and the loss that keeps it balanced.

        Args:
            inputs: float32, bfloat16 or float16 [*batch, d].
            token_mask: bool[*batch]: tokens that count; the others are not read and give zero.
                None: all of them.

        Returns:
            ([*batch, d], load-balance loss float32[]: 1 when balanced, more otherwise; 0 for
            "expert_choice").

        Raises:
            TypeError, ValueError: for a wrong shape, dtype or option, naming the argument.
        """
        moe.check_options(self.num_experts, self.hidden, self.top_k, self.activation, self.routing)
        d, experts = inputs.shape[-1], self.num_experts
        router = self.param("router", self.router_init, (d, experts), self.param_dtype)
        into, out = (experts, d, self.hidden), (experts, self.hidden, d)
        gate = None
        if self.activation == "swiglu":
            gate = self.param("gate", self.kernel_init, into, self.param_dtype)
        up = self.param("up", self.kernel_init, into, self.param_dtype)
        down = self.param("down", self.kernel_init, out, self.param_dtype)
        x, gate, up, down = promote_dtype(jnp.asarray(inputs), gate, up, down, dtype=self.dtype)
        return moe.run(
            x,  # pyright: ignore[reportArgumentType]
            router,
            gate,
            up,  # pyright: ignore[reportArgumentType]
            down,  # pyright: ignore[reportArgumentType]
            token_mask,
            top_k=self.top_k,
            activation=self.activation,
            routing=self.routing,
            normalize=self.normalize,
            precision=self.precision,
            implementation=self.implementation,
        )
