"""Derivatives in both modes for ops that run kernels of their own.

An op gives its derivative twice: the tangent of its result, and that map's transpose, the
cotangents of its operands. (`jax.custom_vjp` takes the second only, and refuses forward mode.)
Reverse mode traces, saves and runs what `custom_vjp` would; a zero tangent costs no product; rules
that are made of differentiable ops have derivatives of any order, so a sparse op's stay sparse.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax.custom_derivatives import zero_from_primal
from jax.interpreters import ad

from jaxsparse.core.linear import Leaves, in_front, linear_map, made, zeros

#: Tangents of a function's operands, as its rules take them; None is zero.
Tangents = Sequence[Any]

_NONE = object()

#: Contexts of trace-time settings: a tangent is traced under those of its op.
_contexts: list[Any] = []


def keep_context(context: Any) -> None:
    """Trace tangents with the value that this `jax.make_user_context` has where the op is called:
    they are traced late, when the `with` block is left.
    """
    _contexts.append(context)


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True)
class Fact:
    """A static value among those that a forward rule saves."""

    value: Any


def product_rule(values: Leaves, tangents: Leaves) -> list[tuple[Any, ...]]:
    """For each tangent that is not zero (None): the values with it in its value's place."""
    return [
        (*values[:i], tangent, *values[i + 1 :])
        for i, tangent in enumerate(tangents)
        if tangent is not None
    ]


def tangent_of(function: Callable[..., Any], primals: Leaves, tangents: Leaves) -> Any:
    """The tangent of a function that JAX differentiates. Where a tangent, or a part of one, is None
    it is zero; so is the result, when all are.
    """
    leaves, tree = jax.tree.flatten(tuple(primals))
    moved = _matched(tuple(tangents), tree)
    at = [i for i, tangent in enumerate(moved) if tangent is not None]

    def run(*values: Any) -> Any:
        changed = list(leaves)
        for i, value in zip(at, values, strict=True):
            changed[i] = value
        return function(*jax.tree.unflatten(tree, changed))

    if not at:
        return None
    return jax.jvp(run, [leaves[i] for i in at], [moved[i] for i in at])[1]


class Differentiable:
    """A function with derivative rules of its own. It takes static arguments, which are hashable,
    and then operands: pytrees of arrays, of which None and what is not a float have no derivative.
    """

    def __init__(self, run: Callable[..., Any], static: int):
        functools.update_wrapper(self, run)
        self.run, self._static = run, static

    def defrules(
        self,
        forward: Callable[..., Any],
        tangent: Callable[..., Any],
        backward: Callable[..., Any],
    ) -> None:
        """The derivative. Each rule takes the static arguments first, and then:

        Args:
            forward: (*operands) -> (result, saved): what is saved is all that the others read.
            tangent: (saved, tangents) -> tangent of the result. `tangents` has one entry for each
                operand: None where it is zero, and None for the leaves of a pytree that are. None
                in the result is zero, and stands for leaves that are not floats.
            backward: (saved, cotangent) -> cotangents of the operands, the transpose of `tangent`.
                None stands for an operand, or a part of one, that has none. Leaves of the cotangent
                are None where the result's are not floats.
        """
        self.forward, self.tangent, self.backward = forward, tangent, backward

    def __call__(self, *args: Any) -> Any:
        """The result of the function."""
        static, operands = args[: self._static], args[self._static :]
        leaves, tree = jax.tree.flatten(operands)
        trees = []

        def flat(*leaves: Any) -> list[Any]:
            found, result = jax.tree.flatten(self.run(*static, *jax.tree.unflatten(tree, leaves)))
            trees.append(result)
            return found

        jaxpr = jax.make_jaxpr(flat)(*leaves)
        return jax.tree.unflatten(trees[0], _bind(_Call(self, static, tree), jaxpr, leaves))


def differentiable(static: int = 1) -> Callable[[Callable[..., Any]], Differentiable]:
    """Decorate a function whose first `static` arguments are static."""
    return functools.partial(Differentiable, static=static)


class _Called(Protocol):
    """A call whose leaves are flat, and hashable."""

    def jvp(self, moving: tuple[bool, ...], primals: Leaves, given: Leaves) -> Any:
        """The results, and the tangents of those that are floats; given are the tangents of the
        leaves that are moving.
        """
        ...


@dataclasses.dataclass(frozen=True)
class _Call:
    """A call of a function with these static arguments, on operands of this tree."""

    function: Differentiable
    static: tuple[Any, ...]
    operands: Any

    def jvp(self, moving: tuple[bool, ...], primals: Leaves, given: Leaves) -> Any:
        """As of every call."""
        operands = jax.tree.unflatten(self.operands, primals)
        result, saved = self.function.forward(*self.static, *operands)
        kept, saved_tree = jax.tree.flatten(saved)
        results, result_tree = jax.tree.flatten(result)
        floats = tuple(map(_is_float, results))
        types = tuple(_tangent_type(v) for v in results if _is_float(v))
        trees = saved_tree, result_tree
        linear = _Map(self, *trees, floats, moving, types, _settings(), forwards=True)
        return results, linear_map(linear, kept, given)


@dataclasses.dataclass(frozen=True)
class _BatchedCall:
    """A call under vmap, of leaves that have the axis in front where `axes` say so."""

    call: _Called
    size: int
    axes: tuple[int | None, ...]

    def jvp(self, moving: tuple[bool, ...], primals: Leaves, given: Leaves) -> Any:
        """As of every call. A tangent has the axes of its primal."""
        axes = list(self.axes), [a for a, moves in zip(self.axes, moving, strict=True) if moves]
        run = jax.vmap(functools.partial(self.call.jvp, moving), axes, axis_size=self.size)
        return run(list(primals), list(given))


@dataclasses.dataclass(frozen=True)
class _Map:
    """The tangent of one call: from the tangents of the operands' `moving` leaves to those of the
    result's `floats`; not `forwards`, its transpose.
    """

    call: _Call
    saved: Any
    result: Any
    floats: tuple[bool, ...]
    moving: tuple[bool, ...]
    types: tuple[Any, ...]
    settings: tuple[Any, ...]
    forwards: bool

    def __call__(self, saved: Leaves, given: Leaves) -> list[Any]:
        values, call = jax.tree.unflatten(self.saved, saved), self.call
        with _settings_as(self.settings):
            if self.forwards:
                spread = _spread(call.operands, self.moving, given)
                tangents = tuple(v if jax.tree.leaves(v) else None for v in spread)
                found = call.function.tangent(*call.static, values, tangents)
                return self._taken(found, self.result, self.floats)
            cotangent = _spread(self.result, self.floats, given)
            found = call.function.backward(*call.static, values, cotangent)
            return self._taken(tuple(found), call.operands, self.moving)

    def _taken(self, found: Any, tree: Any, wanted: Sequence[bool]) -> list[jax.Array]:
        """The leaves that are wanted, where None stands for zeros."""
        leaves = [v for v, w in zip(_matched(found, tree), wanted, strict=True) if w]
        for value, like in zip(leaves, self.types, strict=True):
            if value is not None and (value.shape, value.dtype) != (like.shape, like.dtype):
                name = getattr(self.call.function, "__qualname__", "a function")
                raise TypeError(f"a derivative of {name} is {jax.typeof(value)}; it must be {like}")
        pairs = zip(leaves, self.types, strict=True)
        return [zeros(like) if value is None else value for value, like in pairs]

    def some(self, moving: Sequence[bool]) -> "_Map | None":
        """As of every map."""
        if not self.forwards:
            return None
        left = iter(moving)
        return dataclasses.replace(self, moving=tuple(m and next(left) for m in self.moving))

    def transposed(self, types: tuple[Any, ...]) -> "_Map":
        """As of every map."""
        turned = {"forwards": not self.forwards, "types": types, "settings": _settings()}
        return dataclasses.replace(self, **turned)


def _bind(call: _Called, jaxpr: Any, leaves: Leaves) -> list[Any]:
    return _primitive().bind(*leaves, call=call, jaxpr=jaxpr)


def _run(*leaves: Any, call: _Called, jaxpr: Any) -> list[Any]:
    from jax.extend.core import jaxpr_as_fun

    return jaxpr_as_fun(jaxpr)(*leaves)


def _types(*_: Any, call: _Called, jaxpr: Any) -> Any:
    return jaxpr.out_avals, jaxpr.effects


def _jvp(primals: Leaves, tangents: Leaves, *, call: _Called, jaxpr: Any) -> Any:
    moving = tuple(type(t) is not ad.Zero for t in tangents)
    given = [t for t, moves in zip(tangents, moving, strict=True) if moves]
    results, found = call.jvp(moving, primals, given)
    left = iter(found)
    return results, [next(left) if _is_float(v) else zero_from_primal(v) for v in results]


def _batch(args: Leaves, dims: Sequence[Any], *, call: _Called, jaxpr: Any) -> Any:
    from jax.extend.core import jaxpr_as_fun

    size, front, axes = in_front(args, dims)
    run = jax.vmap(jaxpr_as_fun(jaxpr), axes, axis_size=size)
    found = _bind(_BatchedCall(call, size, axes), jax.make_jaxpr(run)(*front), front)
    return found, [0] * len(found)


@functools.cache
def _primitive() -> Any:
    """The primitive, made at the first call of an op."""
    op = made("jaxsparse_op", _run, _jvp, _batch)
    op.def_effectful_abstract_eval(_types)
    # From jax 0.12 on some primitives are replaced before a jaxpr is lowered: around them, so is
    # this.
    setattr(op, "to_lojax", _run)  # noqa: B010
    return op


def _is_none(value: Any) -> bool:
    return value is None


def _is_float(value: Any) -> bool:
    return jnp.issubdtype(value.dtype, jnp.inexact)


def _tangent_type(value: Any) -> Any:
    return zero_from_primal(value).aval


def _matched(prefix: Any, tree: Any) -> list[Any]:
    """A leaf for each of the tree's; None in the prefix stands for all that it has there."""
    marked = jax.tree.map(lambda v: _NONE if v is None else v, prefix, is_leaf=_is_none)
    whole = jax.tree.broadcast(marked, jax.tree.unflatten(tree, [0] * tree.num_leaves))
    return [None if v is _NONE else v for v in jax.tree.leaves(whole)]


def _spread(tree: Any, there: Sequence[bool], given: Leaves) -> Any:
    """The pytree with the leaves that are there, and None for the others."""
    left = iter(given)
    return jax.tree.unflatten(tree, [next(left) if is_there else None for is_there in there])


def _settings() -> tuple[Any, ...]:
    return tuple(context.value for context in _contexts)


@contextlib.contextmanager
def _settings_as(values: tuple[Any, ...]) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for context, value in zip(_contexts, values, strict=True):
            stack.enter_context(context(value))
        yield
