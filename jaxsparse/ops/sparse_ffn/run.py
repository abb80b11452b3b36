"""How `sparse_ffn` and the products of its gradient run: vmap folded into the tokens, a mesh, an
implementation per platform, a variant per call.
"""

import functools
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.custom_batching import custom_vmap

from jaxsparse.core.batching import fold, loop_over, unfold
from jaxsparse.core.types import Shaped
from jaxsparse.ffi import Rule, dispatch, over_explicit, partitioned
from jaxsparse.ffi.mesh import mesh_of
from jaxsparse.ops.sparse_ffn import listed, native
from jaxsparse.ops.sparse_ffn.params import FfnParams
from jaxsparse.reference.sparse_ffn import steps
from jaxsparse.select.choice import Choice
from jaxsparse.select.select import choose
from jaxsparse.select.select import run as run_choice
from jaxsparse.select.sparse_ffn.chooser import OP, FfnProblem, against
from jaxsparse.select.table import DENSE

#: The implementations that this op offers.
OFFERED = ("cuda", "cpu", "reference")

_NAMES = ("x", "w_up", "w_gate", "w_down")
_WHY = {
    "d": "activations come after the sum over d: split the tokens",
    "f": "w_down's rows are skipped by activations of every token: split the tokens",
    "n": "every shard would compute all activations: split the tokens",
}
#: A mesh splits the tokens; a product of the gradient sums over them.
_NETWORK = Rule(OP, ("t d", "d f", "d f", "f n"), ("t n",), ("t",), _NAMES, why=_WHY)
_TRANSPOSED = Rule(OP, ("t d", "f d", "d f", "f n"), ("t n",), ("t",), _NAMES, why=_WHY)
_PRODUCT = Rule(OP, ("m k", "k n"), ("m n",), ("m", "k", "n"), ("x", "w_down"))


def network(p: FfnParams) -> Callable[..., jax.Array]:
    """(x[t, d], w_up, w_gate, w_down) -> [t, d_out], with its vmap rule."""

    @custom_vmap
    def run(*args: jax.Array | None) -> jax.Array:
        alone = dispatch(
            OP,
            p.implementation,
            cuda=functools.partial(_native, p, "cuda"),
            cpu=functools.partial(_native, p, "cpu"),
            reference=functools.partial(reference, p),
        )
        rule = _TRANSPOSED if p.transposed_up else _NETWORK
        return partitioned(rule, alone, lambda _, *args: alone(*args))(*args)

    @run.def_vmap
    def rule(axis_size: int, in_batched: Sequence[bool], *args: jax.Array | None):
        return _tokens_folded(run, axis_size, in_batched, args), True

    return run


def product(p: FfnParams) -> Callable[..., jax.Array]:
    """(a[m, k], b[k, n]) -> a @ b with its vmap rule; zeros of a may be skipped."""

    @custom_vmap
    def run(*args: jax.Array) -> jax.Array:
        alone = dispatch(
            OP,
            p.implementation,
            cuda=functools.partial(_dense, p),
            cpu=functools.partial(_skipping, p, "cpu"),
            reference=functools.partial(_dense, p),
        )
        return partitioned(_PRODUCT, alone, lambda _, *args: alone(*args))(*args)

    @run.def_vmap
    def rule(axis_size: int, in_batched: Sequence[bool], *args: jax.Array):
        return _tokens_folded(run, axis_size, in_batched, args), True

    return run


def dense(p: FfnParams) -> Callable[..., jax.Array]:
    """(a[m, k], b[k, n]) -> a @ b by XLA, which splits it over a mesh itself."""
    alone = functools.partial(_dense, p)
    return over_explicit(_PRODUCT, alone, lambda _, *args: alone(*args))


def hidden(p: FfnParams) -> Callable[..., Any]:
    """(x, w_up [d, f], w_gate) -> (h, pre, up, kept) by XLA: `steps.hidden`."""

    def alone(*args: jax.Array | None) -> Any:
        return _hidden(p, *args, choose=_largest)

    def some(*args: jax.Array | None) -> tuple[jax.Array, ...]:
        return tuple(v for v in alone(*args) if v is not None)

    def run(*args: jax.Array | None) -> Any:
        there = [v is not None for v in jax.eval_shape(alone, *args)]
        names, operands = _NAMES[:3], _NETWORK.operands[:3]
        rule = Rule(OP, operands, ("t f",) * sum(there), ("t",), names, why=_WHY)
        found = iter(over_explicit(rule, some, lambda _, *args: some(*args))(*args))
        return tuple(next(found) if is_there else None for is_there in there)

    return run


def active(
    p: FfnParams,
    name: str | None,
    x: jax.Array,
    w_up: jax.Array,
    w_gate: jax.Array | None,
    w_down: jax.Array,
) -> jax.Array:
    """int32[]: how many activations are not zero. Of implementation "cuda" all of them, where lists
    have no room for them: then the dense products run.
    """
    h = hidden(p)(x, p.up(w_up), w_gate)[0]
    count = _count(h)
    if h.size == 0 or name != "cuda":
        return count
    problem = problem_of(p, name, x, w_gate, w_down)
    if problem.few or not listed.listed(choose(OP, problem)):
        return count
    return listed.count_of(h, count)


def sampled(p: FfnParams) -> Callable[..., jax.Array]:
    """(ct[t, n], w_down[f, n], pre[t, f]) -> ct @ w_down^T where pre is above 0, else 0."""

    def alone(ct: jax.Array, w_down: jax.Array, pre: jax.Array) -> jax.Array:
        found = _dense(p, ct, w_down.T)
        return jnp.where(_idle(pre), jnp.zeros_like(found), found)

    rule = Rule(OP, ("t n", "f n", "t f"), ("t f",), ("t",), ("the result", "w_down", "x"))
    return over_explicit(rule, alone, lambda _, *args: alone(*args))


def reference(
    p: FfnParams, x: jax.Array, w_up: jax.Array, w_gate: jax.Array | None, w_down: jax.Array
) -> jax.Array:
    """Every product dense."""
    return _dense(p, _hidden(p, x, p.up(w_up), w_gate)[0], w_down)


def describe(
    p: FfnParams, name: str, x: Shaped, w_up: Shaped, w_gate: Shaped | None, w_down: Shaped
) -> tuple[Choice | None, dict[str, str]]:
    """For `js.explain`: the choice of implementation `name`, and the reasons against its other
    variants.
    """
    if name == "reference" or 0 in (*x.shape, *w_up.shape, *w_down.shape):
        return None, {}
    problem = problem_of(p, name, x, w_gate, w_down)
    return choose(OP, problem), against(problem)


def problem_of(
    p: FfnParams,
    platform: str,
    x: Shaped,
    w_gate: Shaped | None,
    w_down: Shaped,
) -> FfnProblem:
    """What the choice for one call depends on."""
    return FfnProblem(
        platform,
        (x.shape[0], x.shape[1], w_down.shape[0], w_down.shape[1]),
        w_gate is not None,
        p.top_k if p.top_k < w_down.shape[0] else 0,
        x.dtype.name,
        p.precision,
        p.implementation is not None,
        p.transposed_up,
    )


def _native(
    p: FfnParams,
    platform: str,
    x: jax.Array,
    w_up: jax.Array,
    w_gate: jax.Array | None,
    w_down: jax.Array,
) -> jax.Array:
    """One call where the kernels take few tokens, else XLA's first products and a choice for the
    last.
    """
    if 0 in (*x.shape, *w_up.shape, *w_down.shape):
        return reference(p, x, w_up, w_gate, w_down)
    problem = problem_of(p, platform, x, w_gate, w_down)
    choice = choose(OP, problem)
    if problem.few and len(choice.names) > 1:
        # What is zero is known inside of the call: nothing is counted before it.
        branches = {
            name: functools.partial(reference, p)
            if name == DENSE
            else functools.partial(native.few_tokens, p, platform)
            for name in choice.names
        }
        return run_choice(problem.known, choice, branches, jnp.int32(0))(x, w_up, w_gate, w_down)
    if platform == "cuda" and listed.listed(choice) and w_gate is not None and not p.top_k:
        return listed.gated(p, problem, choice, x, w_up, w_gate, w_down)
    h = _hidden(p, x, p.up(w_up), w_gate)[0]
    return _skipping(p, platform, h, w_down, problem)


def _skipping(
    p: FfnParams, platform: str, a: jax.Array, b: jax.Array, problem: FfnProblem | None = None
) -> jax.Array:
    """a @ b by what is chosen for it: of a call's own problem, or as a product alone."""
    if 0 in (*a.shape, *b.shape):
        return _dense(p, a, b)
    if problem is None:
        sizes = (a.shape[0], 0, b.shape[0], b.shape[1])
        own = p.implementation is not None
        problem = FfnProblem(platform, sizes, False, 0, a.dtype.name, p.precision, own)
    choice = choose(OP, problem)
    if platform == "cuda" and listed.listed(choice):
        return listed.product(p, problem, choice, a, b)
    branches: dict[str, Callable[..., jax.Array]] = {
        name: functools.partial(_dense, p) if name == DENSE else native.product
        for name in choice.names
    }
    count = _count(a)
    return run_choice(problem.known, choice, branches, count)(a, b)


def _hidden(p: FfnParams, *args: Any, choose: Callable[..., jax.Array] = steps.largest) -> Any:
    x, w_up, w_gate = args
    top_k = p.top_k or None
    return steps.hidden(x, w_up, w_gate, p.activation, top_k, p.lax_precision, choose)


def _largest(h: jax.Array, k: int) -> jax.Array:
    """`steps.largest` where a mesh splits the tokens, which XLA gathers for its own top-k."""
    h = lax.stop_gradient(h)
    if mesh_of([h]) is None:
        return steps.largest(h, k)
    rule = Rule(OP, ("t f",), ("t f",), ("t",), _NAMES[:1], why=_WHY)

    @custom_vmap
    def run(h: jax.Array) -> jax.Array:
        return partitioned(rule, lambda h: steps.largest(h, k), lambda _, h: steps.largest(h, k))(h)

    @run.def_vmap
    def rule_of_vmap(axis_size: int, in_batched: Sequence[bool], h: jax.Array):
        return unfold(run(fold(h, True, axis_size)), axis_size, h.shape[1]), True

    return run(h)


def _dense(p: FfnParams, a: jax.Array, b: jax.Array) -> jax.Array:
    return steps.product(a, b, p.lax_precision)


def _count(a: jax.Array) -> jax.Array:
    """int32[]: entries that are not zero. Columns by a product with ones, which XLA does faster on
    a CPU than its own sum, and exactly below 2^24 rows.
    """
    there = (a != jnp.zeros_like(a)).astype(jnp.float32)
    columns = lax.dot(jnp.ones(a.shape[0], jnp.float32), there, precision=lax.Precision.HIGHEST)
    return jnp.sum(columns.astype(jnp.int32))


def _idle(pre: jax.Array) -> jax.Array:
    """Where a relu is zero: NaN is not."""
    return pre <= jnp.zeros_like(pre)


def _tokens_folded(
    run: Callable[..., jax.Array],
    axis_size: int,
    in_batched: Sequence[bool],
    args: Sequence[jax.Array | None],
) -> jax.Array:
    """A batch of the first operand alone is more of its rows; others are taken one by one."""
    first, *others = args
    if first is None or not in_batched[0] or any(jax.tree.leaves(list(in_batched[1:]))):
        return loop_over(run, args, in_batched)
    return unfold(run(fold(first, True, axis_size), *others), axis_size, first.shape[1])
