"""Many tokens on a GPU: lists of what is not zero, and the choice between them and dense products.

A list has room for a quarter of its columns. Where one of them has more, the dense products run: a
result never depends on what fits.
"""

import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax

from jaxsparse.ops.sparse_ffn import native
from jaxsparse.ops.sparse_ffn.params import FfnParams
from jaxsparse.reference.sparse_ffn import steps
from jaxsparse.select.choice import Choice
from jaxsparse.select.select import run as run_choice
from jaxsparse.select.sparse_ffn.chooser import CHUNK, GROUP, LISTS, ROOM, FfnProblem
from jaxsparse.select.table import DENSE


def listed(choice: Choice) -> bool:
    """Whether lists may run."""
    return any(rung.variant == LISTS for rung in choice.rungs)


def gated(
    p: FfnParams,
    problem: FfnProblem,
    choice: Choice,
    x: jax.Array,
    w_up: jax.Array,
    w_gate: jax.Array,
    w_down: jax.Array,
) -> jax.Array:
    """[tokens, d] -> [tokens, d_out]: XLA computes the gate, lists the rest where it is open."""
    pre = steps.product(x, w_gate, p.lax_precision)
    lists = native.lists(pre, rectified=True, squared=p.activation == "relu2")

    def dense(
        pre: jax.Array, x: jax.Array, w_up: jax.Array, w_down: jax.Array, _: Any
    ) -> jax.Array:
        up = steps.product(x, p.up(w_up), p.lax_precision)
        h = steps.activations(pre, up, p.activation)
        return steps.product(h, w_down, p.lax_precision)

    def sparse(_: Any, x: jax.Array, w_up: jax.Array, w_down: jax.Array, h: Any) -> jax.Array:
        return native.listed(h, w_down, x.shape[0], x, p.up(w_up).T)

    return _run(problem, choice, sparse, dense, (pre, x, w_up, w_down, lists))


def product(
    p: FfnParams, problem: FfnProblem, choice: Choice, a: jax.Array, b: jax.Array
) -> jax.Array:
    """a @ b, where a has many zeros."""

    def dense(a: jax.Array, b: jax.Array, _: Any) -> jax.Array:
        return steps.product(a, b, p.lax_precision)

    def sparse(a: jax.Array, b: jax.Array, lists: Any) -> jax.Array:
        return native.listed(lists, b, a.shape[0])

    return _run(problem, choice, sparse, dense, (a, b, native.lists(a)))


def count_of(h: jax.Array, active: jax.Array) -> jax.Array:
    """int32[]: `active`, or all entries of h where a list has no room: the choice's count."""
    rows, columns = -h.shape[0] % GROUP, -h.shape[1] % CHUNK
    there = jnp.pad(h != jnp.zeros_like(h), ((0, rows), (0, columns)))
    groups = there.reshape(-1, GROUP, there.shape[1]).any(1)
    most = groups.reshape(groups.shape[0], -1, CHUNK).sum(2, dtype=jnp.int32).max(initial=0)
    return jnp.where(most <= ROOM, active, h.size)


def _run(
    problem: FfnProblem,
    choice: Choice,
    sparse: Callable[..., jax.Array],
    dense: Callable[..., jax.Array],
    operands: tuple[Any, ...],
) -> jax.Array:
    """What is chosen, of functions of `operands`, whose last are the lists."""
    lists: native.Lists = operands[-1]
    known = problem.known
    if not _ends_dense(choice):
        sparse = functools.partial(_where_it_fits, sparse, dense)
    count = jnp.where(lists.fit, lists.active, known.n_tiles)
    branches = {name: dense if name == DENSE else sparse for name in choice.names}
    result: jax.Array = run_choice(known, choice, branches, count)(*operands)
    return result


def _ends_dense(choice: Choice) -> bool:
    """Whether the dense products run when the count is that of all entries."""
    if choice.by is not None or len(choice.rungs) < 2:
        return False
    before, last = choice.rungs[-2:]
    return last.variant == DENSE and before.up_to < 1


def _where_it_fits(
    sparse: Callable[..., jax.Array], dense: Callable[..., jax.Array], *operands: Any
) -> jax.Array:
    result: jax.Array = lax.cond(operands[-1].fit, sparse, dense, *operands)
    return result
