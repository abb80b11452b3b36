"""`top_experts`: from a router's logits to each token's experts, their weights, and what the
load-balance loss needs, in one pass. `route` sorts what it chose.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, NamedTuple, cast

import jax
import jax.numpy as jnp
import numpy as np
from jax.custom_batching import custom_vmap
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from jaxsparse.core.batching import fold
from jaxsparse.core.checks import check_positive, check_rank
from jaxsparse.core.differentiable import differentiable, tangent_of
from jaxsparse.core.masks import check_mask
from jaxsparse.ffi import Implementation, Rule, absent, dispatch, ffi_call, partitioned
from jaxsparse.ffi.call import lift
from jaxsparse.ffi.mesh import sharded_as
from jaxsparse.ffi.platform import Name, implementation_key, plan, wishes
from jaxsparse.index.experts import TopExperts as TopExperts
from jaxsparse.reference import top_experts as reference
from jaxsparse.select.explain import record

MOST_EXPERTS = 1024  # of the CUDA kernel; more are chosen by XLA's own operations
OFFERED = ("cuda", "cpu", "reference")
_MOST_PARTS, _PART_TOKENS = 264, 16


class _Options(NamedTuple):
    top_k: int
    normalize: bool
    implementation: Any


def top_experts(
    logits: Float[ArrayLike, "t experts"],
    top_k: int,
    *,
    mask: Bool[ArrayLike, "t"] | None = None,
    normalize: bool = False,
    implementation: Implementation = None,
) -> TopExperts:
    """The `top_k` experts of each token with the greatest logits, and their softmax probabilities.

    Of equal logits the expert with the lower number goes first, as in `jax.lax.top_k`; a NaN goes
    before all numbers.

    Args:
        logits: float32 [t, experts].
        top_k: experts of a token, 1 to `experts`.
        mask: bool[t]: tokens that count; the others' logits are not read. None: all of them.
        normalize: divide the weights of a token by their sum.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.
            "cuda" takes up to 1024 experts; None runs XLA's own operations on a GPU for more.

    Returns:
        `TopExperts`; differentiable in the logits, of any order.

    Raises:
        TypeError, ValueError: for a wrong rank, shape, dtype or number, naming the argument;
            ValueError when a named implementation cannot run.
    """
    logits, counts = _arrays(logits, mask)
    top_k = check_positive("top_k", top_k)
    if top_k > logits.shape[1]:
        raise ValueError(f"top_k={top_k} is more than the {logits.shape[1]} experts of logits")
    present = None if counts is None else counts[None]
    ids, weights, sums = top_experts_of_lists(
        logits[None], top_k, mask=present, normalize=normalize, implementation=implementation
    )
    return TopExperts(ids[0], weights[0], sums[0])


def top_experts_of_lists(
    logits: Float[Array, "l t experts"],
    top_k: int,
    *,
    mask: Bool[Array, "l t"] | None = None,
    normalize: bool = False,
    implementation: Implementation = None,
) -> TopExperts:
    """`top_experts` of each list, on arrays that fit; a mesh splits the lists and the tokens."""
    implementation = _that_takes(logits.shape[-1], implementation)
    _record(logits, implementation)
    options = _Options(top_k, bool(normalize), implementation_key(implementation))
    return TopExperts(*cast(Any, _choose(options, *lift(logits, mask))))


def _arrays(logits: Any, mask: Any) -> tuple[jax.Array, jax.Array | None]:
    """Both as jax arrays, checked."""
    check_rank("logits", logits, 2)
    if logits.dtype != np.float32:
        raise TypeError(f"logits has dtype {logits.dtype}; it takes float32")
    if mask is None:
        return jnp.asarray(logits), None
    tokens = (logits.shape[0],)
    return jnp.asarray(logits), check_mask("mask", mask, tokens, fixed=1, of="the tokens are")


def _that_takes(experts: int, implementation: Implementation) -> Implementation:
    """`implementation` without a named "cuda" that cannot take so many experts."""
    implementation = implementation_key(implementation)
    names = wishes(implementation)
    if "cuda" not in names or experts <= MOST_EXPERTS:
        return implementation
    others: tuple[Name, ...] = tuple(name for name in names if name != "cuda")
    if not others:
        raise ValueError(
            f"top_experts: implementation={implementation!r} cannot run "
            f"(cuda: logits has {experts} experts; it takes up to {MOST_EXPERTS})"
        )
    return others


def _record(logits: jax.Array, implementation: Implementation) -> None:
    """For `js.explain`."""
    tokens, experts = logits.shape[0] * logits.shape[1], logits.shape[2]
    implementations = plan("top_experts", implementation, OFFERED)
    against = {}
    if experts > MOST_EXPERTS and implementations.get("cuda") == "cuda":
        implementations["cuda"] = "reference"
        against["the kernel"] = f"{experts} experts; it takes up to {MOST_EXPERTS}"
    record(
        "top_experts",
        f"float32{[tokens, experts]}",
        implementations,
        lambda _: (None, against),
        None,
    )


@differentiable()
def _choose(options: _Options, logits: jax.Array, counts: jax.Array | None) -> Any:
    return _run(options)(logits, counts)


def _choose_fwd(options: _Options, logits: jax.Array, counts: jax.Array | None):
    out = cast(Any, _choose(options, logits, counts))
    return out, (logits, counts, out[0])


def _choose_bwd(options: _Options, saved: Any, cts: tuple[jax.Array, ...]):
    logits, counts, ids = saved
    smooth = functools.partial(_smooth, options, counts, ids)
    found, pull = jax.vjp(smooth, logits)
    return pull(tuple(map(sharded_as, cts[1:], found)))[0], None


def _choose_tangent(options: _Options, saved: Any, tangents: Any):
    logits, counts, ids = saved
    smooth = functools.partial(_smooth, options, counts, ids)
    return None, *tangent_of(smooth, (logits,), tangents[:1])


def _smooth(options: _Options, counts: Any, ids: Any, logits: Any) -> tuple[jax.Array, jax.Array]:
    """The weights and sums where the choice stays the same."""
    probabilities = reference.probabilities_of(logits, counts)
    weights = reference.weights_of(probabilities, ids, options.normalize)
    return weights, jnp.sum(probabilities, axis=1)


_choose.defrules(_choose_fwd, _choose_tangent, _choose_bwd)


#: A mesh splits the tokens, over whose shards the probabilities are summed.
_MESH_RULE = Rule(
    "top_experts",
    ("l t .", "l t"),
    ("l t .", "l t .", "l ."),
    ("l", "t"),
    ("logits", "mask"),
    from_end=True,
    why={".": "a token's greatest logits are among all of its logits"},
)


def _run(options: _Options) -> Any:
    """A function (f32[lists, tokens, experts], bool[lists, tokens] or None) -> ids, weights, sums,
    with a vmap rule that folds the batch axis into the lists.
    """
    top_k, normalize, implementation = options

    def native(parts: int, logits: jax.Array, counts: jax.Array | None) -> tuple[jax.Array, ...]:
        lists, tokens, experts = logits.shape
        chosen = (lists, tokens, top_k)
        results = [(chosen, np.int32), (chosen, np.float32), ((lists, parts, experts), np.float32)]
        present = absent(counts, bool, (0, 0))
        return tuple(
            ffi_call("jaxsparse_top_experts", results, logits, present, normalize=normalize)
        )

    def plain(parts: int, logits: jax.Array, counts: jax.Array | None) -> tuple[jax.Array, ...]:
        ids, weights, sums = reference.top_experts(logits, counts, top_k, normalize)
        return ids, weights, jnp.pad(sums, ((0, 0), (0, parts - 1), (0, 0)))

    def on_any(logits: jax.Array, counts: jax.Array | None) -> tuple[jax.Array, ...]:
        parts = _parts(logits.shape[1])
        known = logits.shape[2] <= MOST_EXPERTS
        return dispatch(
            "top_experts",
            implementation,
            cuda=functools.partial(native if known else plain, parts),
            cpu=functools.partial(native, parts),
            reference=functools.partial(plain, parts),
        )(logits, counts)

    def summed(logits: jax.Array, counts: jax.Array | None) -> tuple[jax.Array, ...]:
        ids, weights, sums = on_any(logits, counts)
        return ids, weights, jnp.sum(sums, axis=1)

    split = partitioned(_MESH_RULE, summed, lambda _, *given: summed(*given))

    @custom_vmap
    def run(logits: jax.Array, counts: jax.Array | None) -> tuple[jax.Array, ...]:
        return split(logits, counts)

    @run.def_vmap
    def rule(
        axis_size: int, in_batched: Sequence[bool], logits: jax.Array, counts: jax.Array | None
    ):
        mask = None if counts is None else fold(counts, in_batched[1], axis_size)
        out = run(fold(logits, in_batched[0], axis_size), mask)
        lists = logits.shape[1 if in_batched[0] else 0]
        back = tuple(v.reshape(axis_size, lists, *v.shape[1:]) for v in out)
        return back, (True, True, True)

    return run


def _parts(tokens: int) -> int:
    """Parts of the sums: blocks of a launch on the GPU, items of work on the CPU."""
    return max(1, min(_MOST_PARTS, -(-tokens // _PART_TOKENS)))
