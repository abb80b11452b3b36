"""What the linen and the nnx `MoE` share: routing, the experts' products, and the load-balance
loss.
"""

from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float

from jaxsparse.ffi import Implementation
from jaxsparse.ops import grouped_matmul, route

ACTIVATIONS = {"relu": jax.nn.relu, "gelu": jax.nn.gelu, "silu": jax.nn.silu, "swiglu": jax.nn.silu}
ROUTINGS = ("top_k", "expert_choice")


def check_options(num_experts: Any, hidden: Any, top_k: Any, activation: str, routing: str) -> None:
    """Refuse options that no layer can take.

    Raises:
        ValueError: naming the argument, what came, and what is needed.
    """
    for name, value in (("num_experts", num_experts), ("hidden", hidden), ("top_k", top_k)):
        if isinstance(value, bool) or not isinstance(value, int) or value < 1:
            raise ValueError(f"{name}={value!r}; it takes a positive int")
    if top_k > num_experts:
        raise ValueError(f"top_k={top_k} is more than num_experts={num_experts}")
    if activation not in ACTIVATIONS:
        raise ValueError(
            f"activation={activation!r} is none of {', '.join(map(repr, ACTIVATIONS))}"
        )
    if routing not in ROUTINGS:
        raise ValueError(f"routing={routing!r} is none of {', '.join(map(repr, ROUTINGS))}")


def run(
    x: Float[Array, "*batch d"],
    router: Float[Array, "d experts"],
    gate: Float[Array, "experts d hidden"] | None,
    up: Float[Array, "experts d hidden"],
    down: Float[Array, "experts hidden d"],
    token_mask: Bool[Array, "*batch"] | None,
    *,
    top_k: int,
    activation: str,
    routing: str,
    normalize: bool | None,
    precision: Any,
    implementation: Implementation,
) -> tuple[jax.Array, jax.Array]:
    """The layer on promoted arrays: (result like x, load-balance loss float32[]).

    Raises:
        TypeError, ValueError: for a token_mask that does not fit, and what `js.grouped_matmul`
            raises.
    """
    batch, tokens = x.shape[:-1], x.reshape(-1, x.shape[-1])
    mask = None
    if token_mask is not None:
        token_mask = jnp.asarray(token_mask)
        if token_mask.dtype != bool:
            raise TypeError(f"token_mask has dtype {token_mask.dtype}; it takes bool")
        if token_mask.shape != batch:
            raise ValueError(
                f"token_mask has shape {token_mask.shape}; inputs' tokens have {batch}"
            )
        mask = token_mask.reshape(-1)
    probabilities = route_probabilities(tokens, router, mask)
    if routing == "top_k":
        plan = choose_experts(probabilities, mask, top_k, normalize, implementation)
    else:
        plan = choose_tokens(probabilities, mask, top_k)
    sizes, rows, weights, loss = plan
    options = {"precision": precision, "implementation": implementation}
    h = grouped_matmul(tokens, up, sizes, gather=rows, **options)
    if gate is not None:
        h = ACTIVATIONS[activation](grouped_matmul(tokens, gate, sizes, gather=rows, **options)) * h
    else:
        h = ACTIVATIONS[activation](h)
    y = grouped_matmul(
        h,
        down,
        sizes,
        scatter=rows,
        row_weights=weights,
        num_rows=tokens.shape[0],
        **options,
    )
    return y.reshape(*batch, y.shape[-1]), loss


def route_probabilities(
    tokens: jax.Array, router: jax.Array, mask: jax.Array | None
) -> Float[Array, "tokens experts"]:
    """softmax of the router's logits in float32; tokens that do not count are not read."""
    if mask is not None:
        tokens = jnp.where(mask[:, None], tokens, jnp.zeros_like(tokens))
    logits = jnp.matmul(
        tokens.astype(jnp.float32), router.astype(jnp.float32), precision=jax.lax.Precision.HIGHEST
    )
    return jax.nn.softmax(logits, axis=-1)


def choose_experts(
    probabilities: jax.Array,
    mask: jax.Array | None,
    top_k: int,
    normalize: bool | None,
    implementation: Implementation,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Each token takes its `top_k` experts; none is dropped. -> group_sizes, token of each sorted
    row, its weight, loss.
    """
    experts = probabilities.shape[1]
    weights, ids = jax.lax.top_k(probabilities, top_k)
    if normalize if normalize is not None else top_k > 1:
        weights = weights / weights.sum(axis=1, keepdims=True)
    if mask is not None:
        ids = jnp.where(mask[:, None], ids, -1)
    routing = route(ids, experts, implementation=implementation)
    loss = load_balance_loss(probabilities, routing.group_sizes, mask)
    return routing.group_sizes, routing.gather, weights.reshape(-1)[routing.order], loss


def choose_tokens(
    probabilities: jax.Array, mask: jax.Array | None, top_k: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Each expert takes as many tokens as `top_k` for each token makes; balanced, so the loss is
    zero.
    """
    tokens, experts = probabilities.shape
    capacity = min(-(-tokens * top_k // experts), tokens)
    scores = probabilities.T
    if mask is not None:
        scores = jnp.where(mask[None], scores, jnp.zeros_like(scores))
    weights, rows = jax.lax.top_k(scores, capacity)
    if mask is not None:
        rows = jnp.where(mask[rows], rows, -1)  # an index out of range contributes nothing
    sizes = jnp.full(experts, capacity, jnp.int32)
    return sizes, rows.reshape(-1), weights.reshape(-1), jnp.float32(0)


def load_balance_loss(
    probabilities: jax.Array, group_sizes: jax.Array, mask: jax.Array | None
) -> Float[Array, ""]:
    """`experts * sum(share of the assignments * mean probability)`: 1 when balanced, at most
    `experts`.
    """
    count = probabilities.shape[0] if mask is None else mask.sum()
    if mask is not None:
        probabilities = jnp.where(mask[:, None], probabilities, jnp.zeros_like(probabilities))
    mean = probabilities.sum(0) / jnp.maximum(jnp.asarray(count, jnp.float32), 1.0)
    sizes = group_sizes.astype(jnp.float32)
    share = sizes / jnp.maximum(sizes.sum(), 1.0)
    return probabilities.shape[1] * jnp.sum(share * mean)
