"""What the linen and the nnx `MoE` share: routing, the experts' products, and the load-balance
loss.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Mapping
from typing import Any, TypedDict

import jax
import jax.numpy as jnp
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float

from jaxsparse.core.checks import canonical_precision, check_positive
from jaxsparse.core.differentiable import differentiable, tangent_of
from jaxsparse.core.dtypes import FLOATS
from jaxsparse.core.masks import check_mask
from jaxsparse.core.types import ExpertActivation
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.mesh import is_explicit, mesh_of
from jaxsparse.ffi.platform import named
from jaxsparse.nn.checks import check_array, check_dtypes, check_width
from jaxsparse.nn.experts import ACTIVATIONS, Experts, experts_on_mesh, whole_tokens
from jaxsparse.nn.types import Initializer, RoutingRule
from jaxsparse.ops import grouped_matmul, route
from jaxsparse.ops.grouped_gated.api import grouped_gated
from jaxsparse.ops.top_experts.api import top_experts, top_experts_of_lists

ROUTINGS = ("top_k", "expert_choice")
ROUTER_INIT: Initializer = jax.nn.initializers.lecun_normal()
EXPERTS_INIT: Initializer = jax.nn.initializers.lecun_normal(batch_axis=(0,))


@dataclasses.dataclass(frozen=True)
class Options:
    """What a layer does with its parameters; the fields of the layers, by the same names."""

    top_k: int
    activation: ExpertActivation
    routing: RoutingRule = "top_k"
    normalize: bool | None = None
    precision: jax.lax.PrecisionLike = None
    implementation: Implementation = None
    expert_axis: str | tuple[str, ...] | None = None


class _How(TypedDict):
    """What the products of one call share."""

    precision: jax.lax.PrecisionLike
    implementation: Implementation


def check_options(
    num_experts: Any,
    hidden: Any,
    options: Options,
    *,
    dtype: DTypeLike | None,
    param_dtype: DTypeLike,
) -> tuple[int, int, Options]:
    """Refuse options that no layer can take. -> num_experts, hidden and the options, numbers as
    int.

    Raises:
        TypeError, ValueError: naming the argument, what came, and what is needed.
    """
    activation, routing = options.activation, options.routing
    num_experts = check_positive("num_experts", num_experts)
    hidden = check_positive("hidden", hidden)
    top_k = check_positive("top_k", options.top_k)
    implementation = named(options.implementation)
    canonical_precision(options.precision)
    if top_k > num_experts:
        raise ValueError(f"top_k={top_k} is more than num_experts={num_experts}")
    if activation not in tuple(ACTIVATIONS):
        raise ValueError(
            f"activation={activation!r} is not one of {', '.join(map(repr, ACTIVATIONS))}"
        )
    if routing not in ROUTINGS:
        raise ValueError(f"routing={routing!r} is not one of {', '.join(map(repr, ROUTINGS))}")
    if options.normalize is not None and not isinstance(options.normalize, bool):
        raise ValueError(f"normalize={options.normalize!r}; it takes None, True or False")
    if options.normalize and routing == "expert_choice":
        raise ValueError("normalize=True: routing='expert_choice' has no weights to normalize")
    names = (
        options.expert_axis if isinstance(options.expert_axis, tuple) else (options.expert_axis,)
    )
    if options.expert_axis is not None and not (names and all(isinstance(n, str) for n in names)):
        raise TypeError(
            f"expert_axis={options.expert_axis!r}; it takes a mesh axis's name, or a tuple of them"
        )
    check_dtypes(dtype=dtype, param_dtype=param_dtype)
    for name, value in (("dtype", dtype), ("param_dtype", param_dtype)):
        if value is not None and not jnp.issubdtype(jnp.dtype(value), jnp.floating):
            raise TypeError(f"{name}={jnp.dtype(value)}; it takes a float dtype")
    options = dataclasses.replace(options, top_k=top_k, implementation=implementation)
    return num_experts, hidden, options


def check_inputs(inputs: Any, mask: Any) -> None:
    """`inputs` are tokens, and the mask is theirs.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    check_array("inputs", inputs, "d")
    check_width("inputs", inputs)
    if not jnp.issubdtype(inputs.dtype, jnp.floating):
        raise TypeError(f"inputs has dtype {inputs.dtype}; it takes float32, bfloat16 or float16")
    if mask is not None:
        check_tokens_mask(mask, tuple(inputs.shape[:-1]))


def check_tokens_mask(mask: Any, batch: tuple[int, ...]) -> jax.Array:
    """A mask of tokens as bool[*batch], leading axes of length 1 broadcast.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    return check_mask("mask", mask, batch, fixed=1, of="the tokens of these inputs are")


def parameter_shapes(
    d: int, num_experts: int, hidden: int, activation: ExpertActivation
) -> dict[str, tuple[int, ...]]:
    """Name -> shape of a layer's parameters, in the order in which they are drawn."""
    into = (num_experts, d, hidden)
    shapes: dict[str, tuple[int, ...]] = {"router": (d, num_experts)}
    if activation == "swiglu":
        shapes["gate"] = into
    return shapes | {"up": into, "down": (num_experts, hidden, d)}


class MoECall:
    """The call of both layers."""

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
        layer: Any = self
        options = layer._options()
        check_inputs(inputs, mask)
        inputs = jnp.asarray(inputs)
        params = layer._experts(inputs)
        experts = [name for name in params if name != "router"]
        x, *promoted = layer._promoted(inputs, *(params[name] for name in experts))
        return run(x, params | dict(zip(experts, promoted, strict=True)), mask, options)


def run(
    x: Float[Array, "*batch d"],
    params: Mapping[str, jax.Array],
    mask: Bool[ArrayLike, "*batch"] | None,
    options: Options,
) -> tuple[jax.Array, jax.Array]:
    """The layer on promoted arrays: (result like x, load-balance loss float32[]).

    Args:
        x: the tokens.
        params: those of `parameter_shapes`; the experts' in x's dtype.
        mask: tokens that count, as `check_inputs` passed it; None: all of them.
        options: of the layer.

    Raises:
        TypeError, ValueError: what `js.grouped_matmul` raises.
    """
    if x.dtype not in FLOATS:
        raise TypeError(
            f"inputs, dtype and param_dtype promote to {x.dtype}; "
            "the layer computes in float32, bfloat16 or float16"
        )
    leaves = jax.tree.leaves((x, mask, params))
    mesh = mesh_of(leaves)
    if mesh is not None and options.routing == "top_k":
        return _run_on_mesh(x, params, mask, options, mesh)
    if mesh is not None:
        x = whole_tokens(x)
        for leaf in leaves[1:]:
            _check_all_tokens(leaf, options)
    batch, tokens = x.shape[:-1], x.reshape(-1, x.shape[-1])
    mask = None if mask is None else check_tokens_mask(mask, batch).reshape(-1)
    logits = route_logits(tokens, params["router"], mask)
    if options.routing == "top_k":
        plan = choose_experts(logits, mask, options)
    else:
        plan = choose_tokens(jax.nn.softmax(logits, axis=-1), mask, options.top_k)
    sizes, rows, weights, loss = plan
    how: _How = {"precision": options.precision, "implementation": options.implementation}
    activation = ACTIVATIONS[options.activation]
    if options.activation == "swiglu":
        h = grouped_gated(tokens, params["gate"], params["up"], sizes, gather=rows, **how)
    else:
        h = activation(grouped_matmul(tokens, params["up"], sizes, gather=rows, **how))
    y = grouped_matmul(
        h,
        params["down"],
        sizes,
        scatter=rows,
        row_weights=weights,
        num_rows=tokens.shape[0],
        **how,
    )
    return y.reshape(*batch, y.shape[-1]), loss


def _check_all_tokens(leaf: jax.Array, options: Options) -> None:
    """Experts that choose among all tokens are not split over Explicit axes.

    Raises:
        ValueError: naming the option.
    """
    if is_explicit(leaf):
        raise ValueError(
            f"routing={options.routing!r}: each expert chooses among all tokens, and an array "
            f"{jax.typeof(leaf).str_short()} is sharded over explicit mesh axes: use "
            "routing='top_k', reshard the mask and parameters to be whole on every device, or "
            "call the layer inside jax.shard_map, where experts choose among the tokens of a shard"
        )


def _run_on_mesh(
    x: jax.Array,
    params: Mapping[str, jax.Array],
    mask: ArrayLike | None,
    options: Options,
    mesh: Any,
) -> tuple[jax.Array, jax.Array]:
    """`run`, where each device routes its own tokens."""
    named_axes = options.expert_axis
    for name in named_axes if isinstance(named_axes, tuple) else (named_axes,):
        if name is not None and name not in mesh.axis_names:
            raise ValueError(f"expert_axis={named_axes!r}: the mesh has axes {mesh.axis_names}")
    if is_explicit(params["router"]):
        raise ValueError(
            f"router {jax.typeof(params['router']).str_short()} is sharded over explicit mesh "
            "axes, but every device chooses experts for its tokens: keep it whole on every device"
        )
    batch = x.shape[:-1]
    counts = None if mask is None else check_tokens_mask(mask, batch)
    logits = route_logits(x, params["router"], counts)
    # The leading axes together, which keeps a sharding of the first of them, or a list of one.
    lists = (math.prod(batch[:-1]), batch[-1]) if batch else (1, 1)
    ids, weights, sums = top_experts_of_lists(
        logits.reshape(*lists, logits.shape[-1]),
        options.top_k,
        mask=None if counts is None else counts.reshape(lists),
        normalize=options.normalize if options.normalize is not None else options.top_k > 1,
        implementation=options.implementation,
    )
    ids, weights = (v.reshape(*batch, options.top_k) for v in (ids, weights))
    how = Experts(
        options.activation, options.precision, options.implementation, options.expert_axis
    )
    arrays = (params.get("gate"), params["up"], params["down"])
    y, sizes = experts_on_mesh(how, x, ids, weights, *arrays)
    count = jnp.int32(math.prod(batch)) if counts is None else counts.sum()
    return y, load_balance_loss(sums.sum(0), sizes, count)


def route_logits(
    tokens: jax.Array, router: jax.Array, mask: jax.Array | None
) -> Float[Array, "*tokens experts"]:
    """The router's logits in float32; tokens that do not count are not read."""
    if mask is not None:
        tokens = jnp.where(mask[..., None], tokens, jnp.zeros_like(tokens))
    if router.dtype != jnp.bfloat16:
        router = router.astype(jnp.float32)
    logits = router_logits if tokens.dtype == jnp.bfloat16 else _float32_logits
    return logits(tokens, router)


def _float32_logits(tokens: jax.Array, router: jax.Array) -> jax.Array:
    tokens, router = (v.astype(jnp.float32) for v in (tokens, router))
    return jnp.matmul(tokens, router, precision=jax.lax.Precision.HIGHEST)


@differentiable(static=0)
def router_logits(
    tokens: Float[Array, "*tokens d"], router: Float[Array, "d experts"]
) -> Float[Array, "*tokens experts"]:
    """tokens @ router in float32, of bfloat16 tokens, on tensor cores: a float32 router is the sum
    of three bfloat16 parts, so every product is exact where no part underflows. A bfloat16 one is
    one part.
    """
    if router.dtype == jnp.bfloat16:
        return jnp.matmul(tokens, router, preferred_element_type=jnp.float32)
    parts = []
    rest = router
    most = float(jnp.finfo(jnp.bfloat16).max)  # what is above it rounds to infinity
    for _ in range(3):
        part = jax.lax.reduce_precision(jnp.clip(rest, -most, most), 8, 7)
        part = jnp.where(jnp.isinf(rest), rest, part)
        parts.append(part.astype(jnp.bfloat16))
        rest = jnp.where(jnp.isinf(rest), jnp.zeros_like(rest), rest - part)
    products = jnp.matmul(
        tokens, jnp.concatenate(parts, axis=1), preferred_element_type=jnp.float32
    )
    high, middle, low = jnp.split(products, 3, axis=-1)
    return high + (middle + low)


def _router_logits_fwd(tokens: jax.Array, router: jax.Array):
    return router_logits(tokens, router), (tokens, router)


def _router_logits_bwd(saved: tuple[jax.Array, jax.Array], ct: jax.Array):
    return jax.vjp(_float32_logits, *saved)[1](ct)


def _router_logits_tangent(saved: tuple[jax.Array, jax.Array], tangents: Any):
    return tangent_of(_float32_logits, saved, tangents)


router_logits.defrules(_router_logits_fwd, _router_logits_tangent, _router_logits_bwd)


def choose_experts(
    logits: jax.Array, mask: jax.Array | None, options: Options
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Each token takes its `top_k` experts; none is dropped. -> group_sizes, token of each sorted
    row, its weight, loss.
    """
    normalize = options.normalize if options.normalize is not None else options.top_k > 1
    how = options.implementation
    ids, weights, sums = top_experts(
        logits, options.top_k, mask=mask, normalize=normalize, implementation=how
    )
    routing = route(ids, logits.shape[1], implementation=how)
    count = jnp.int32(logits.shape[0]) if mask is None else mask.sum()
    loss = load_balance_loss(sums, routing.group_sizes, count)
    return routing.group_sizes, routing.gather, weights.reshape(-1)[routing.order], loss


def choose_tokens(
    probabilities: jax.Array, mask: jax.Array | None, top_k: int
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """Each expert takes as many tokens as `top_k` for each token that counts makes; balanced, so
    the loss is zero.
    """
    tokens, experts = probabilities.shape
    capacity = min(-(-tokens * top_k // experts), tokens)
    scores = probabilities.T
    if mask is not None:
        scores = jnp.where(mask[None], scores, jnp.full_like(scores, -1))
    weights, rows = jax.lax.top_k(scores, capacity)
    weights, rows = weights.reshape(-1), rows.reshape(-1)
    taken = capacity
    if mask is not None:
        # The first `taken` of each expert's `capacity` are of tokens that count: side by side.
        count = mask.sum(dtype=jnp.int32)
        taken = jnp.minimum(-(-count * top_k // experts), count)
        at = jnp.arange(experts * capacity, dtype=jnp.int32)
        each = jnp.maximum(taken, 1)
        source = at // each * capacity + at % each
        live = at < experts * taken
        rows = jnp.where(live, rows.at[source].get(mode="clip"), -1)
        weights = jnp.where(live, weights.at[source].get(mode="clip"), jnp.zeros_like(weights))
    sizes = jnp.full(experts, taken, jnp.int32)
    return sizes, rows, weights, jnp.float32(0)


def load_balance_loss(
    sums: jax.Array, group_sizes: jax.Array, count: jax.Array
) -> Float[Array, ""]:
    """`experts * sum(share of the assignments * mean probability)`: 1 when balanced, at most
    `experts`. `sums`: of the probabilities of `count` tokens.
    """
    mean = sums / jnp.maximum(count.astype(jnp.float32), 1.0)
    sizes = group_sizes.astype(jnp.float32)
    share = sizes / jnp.maximum(sizes.sum(), 1.0)
    return sums.shape[0] * jnp.sum(share * mean)
