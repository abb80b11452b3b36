"""A linear map and its transpose, each written as a function: what derivatives of ops are made of.

`jax.custom_derivatives.linear_call` is that too, but cannot be differentiated in what it does not
transpose. The derivative of `linear_map` is that of the function it runs, so a map that is made of
differentiable ops has derivatives of any order. A map is traced when it runs or is differentiated:
one that is only transposed costs nothing.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import Any, Protocol

import jax
import jax.numpy as jnp
from jax.experimental.custom_partitioning import custom_partitioning
from jax.interpreters import ad, batching, mlir

Leaves = Sequence[Any]


class Linear(Protocol):
    """A hashable map, linear in the leaves that are given, at leaves that were saved."""

    @property
    def types(self) -> tuple[Any, ...]:
        """The abstract values of its results."""
        ...

    def __call__(self, saved: Leaves, given: Leaves) -> list[Any]:
        """The results, flat."""
        ...

    def some(self, moving: Sequence[bool]) -> "Linear | None":
        """The map of these of the given leaves, where the others are zero; None: it takes all."""
        ...

    def transposed(self, types: tuple[Any, ...]) -> "Linear":
        """The transpose; `types` are those of the leaves that this map is given."""
        ...


@dataclasses.dataclass(frozen=True)
class Batched:
    """A map under vmap: `saved` and `given` say which leaves have the axis, in front; results that
    are `summed` over it have none.
    """

    linear: Linear
    size: int
    saved: tuple[int | None, ...]
    given: tuple[int | None, ...]
    summed: tuple[bool, ...]

    @property
    def types(self) -> tuple[Any, ...]:
        """As of every map."""
        from jax.extend.core import unmapped_aval

        return tuple(
            like if summed else unmapped_aval(self.size, 0, like)
            for like, summed in zip(self.linear.types, self.summed, strict=True)
        )

    def __call__(self, saved: Leaves, given: Leaves) -> list[Any]:
        """As of every map."""
        axes = list(self.saved), list(self.given)
        found = jax.vmap(self.linear, axes, axis_size=self.size)(list(saved), list(given))
        return [v.sum(0) if s else v for v, s in zip(found, self.summed, strict=True)]

    def some(self, moving: Sequence[bool]) -> "Batched | None":
        """As of every map."""
        linear = self.linear.some(moving)
        given = tuple(d for d, moves in zip(self.given, moving, strict=True) if moves)
        return None if linear is None else dataclasses.replace(self, linear=linear, given=given)

    def transposed(self, types: tuple[Any, ...]) -> "Batched":
        """A leaf that all entries share gets the sum of their cotangents."""
        from jax.extend.core import mapped_aval

        inner = tuple(
            like if d is None else mapped_aval(self.size, d, like)
            for like, d in zip(types, self.given, strict=True)
        )
        given = tuple(None if summed else 0 for summed in self.summed)
        summed = tuple(d is None for d in self.given)
        return Batched(self.linear.transposed(inner), self.size, self.saved, given, summed)


def linear_map(linear: Linear, saved: Leaves, given: Leaves) -> list[Any]:
    """The map's results, differentiable in both and in both modes.

    Args:
        linear: the map.
        saved, given: what it is taken at, and what it is applied to.
    """
    return _primitive().bind(*saved, *given, linear=linear, saved=len(saved), like=_partitioned())


@functools.cache
def _partitioned() -> Any:
    """A jaxpr with a `custom_partitioning` in it. A map is traced when it is lowered, and may hold
    one then: JAX looks into the parameters of a primitive for those that have to know the devices.
    """
    same = custom_partitioning(lambda x: x)
    same.def_partition(
        partition=lambda mesh, given, results: (mesh, lambda x: x, results, given),
        infer_sharding_from_operands=lambda mesh, given, results: given[0].sharding,
        sharding_rule="i -> i",
    )
    return jax.make_jaxpr(same)(jax.ShapeDtypeStruct((1,), jnp.float32))


def zeros(like: Any) -> jax.Array:
    """Zeros of an abstract value: they vary over mesh axes as it does."""
    return ad.instantiate_zeros(ad.Zero(like))


def _run(*args: Any, linear: Linear, saved: int, like: Any) -> list[Any]:
    return linear(args[:saved], args[saved:])


def _types(*_: Any, linear: Linear, saved: int, like: Any) -> list[Any]:
    return list(linear.types)


def _jvp(primals: Leaves, tangents: Leaves, *, linear: Linear, saved: int, like: Any) -> Any:
    """Linear in what is given; in what was saved, the derivative of the function that runs."""
    kept, given = primals[:saved], primals[saved:]
    terms = []
    moving = [type(t) is not ad.Zero for t in tangents[saved:]]
    if any(moving):
        part = linear.some(moving)
        moved = [
            t if moves else ad.instantiate_zeros(t)
            for t, moves in zip(tangents[saved:], moving, strict=True)
            if moves or part is None
        ]
        terms.append(linear_map(part or linear, kept, moved))
    at = [i for i, t in enumerate(tangents[:saved]) if type(t) is not ad.Zero]
    if at:

        def run(*values: Any) -> list[Any]:
            changed = list(kept)
            for i, value in zip(at, values, strict=True):
                changed[i] = value
            return linear(changed, given)

        moved = [tangents[i] for i in at]
        terms.append(jax.jvp(run, [kept[i] for i in at], moved)[1])
    found = [functools.reduce(ad.add_tangents, each) for each in zip(*terms, strict=True)]
    return linear_map(linear, kept, given), found


def _transpose(cotangents: Leaves, *args: Any, linear: Linear, saved: int, like: Any) -> list[Any]:
    kept, given = args[:saved], args[saved:]
    types = tuple(v.aval if ad.is_undefined_primal(v) else jax.typeof(v) for v in given)
    whole = [ad.instantiate_zeros(ct) for ct in cotangents]
    found = linear_map(linear.transposed(types), kept, whole)
    pairs = zip(given, found, strict=True)
    return [None] * saved + [ct if ad.is_undefined_primal(v) else None for v, ct in pairs]


def in_front(args: Leaves, dims: Sequence[int | None]) -> tuple[int, list[Any], tuple[Any, ...]]:
    """Arguments of a batching rule with the axis in front: its size, they, and their axes."""
    pairs = list(zip(args, dims, strict=True))
    (size,) = {v.shape[d] for v, d in pairs if d is not None}
    front = [v if d is None else jnp.moveaxis(v, d, 0) for v, d in pairs]
    return size, front, tuple(None if d is None else 0 for d in dims)


def _batch(args: Leaves, dims: Sequence[Any], *, linear: Linear, saved: int, like: Any) -> Any:
    size, front, axes = in_front(args, dims)
    count = len(linear.types)
    batched = Batched(linear, size, axes[:saved], axes[saved:], (False,) * count)
    return linear_map(batched, front[:saved], front[saved:]), [0] * count


@functools.cache
def _primitive() -> Any:
    """The primitive, made at the first derivative."""
    primitive = made("jaxsparse_linear_map", _run, _jvp, _batch)
    primitive.def_abstract_eval(_types)
    ad.primitive_transposes[primitive] = _transpose
    return primitive


def made(
    name: str, run: Callable[..., Any], jvp: Callable[..., Any], batch: Callable[..., Any]
) -> Any:
    """A primitive of several results that is lowered as what it runs. Make it when it is first
    used: `jax.extend` loads Pallas.
    """
    from jax.extend.core import Primitive

    primitive = Primitive(name)
    primitive.multiple_results = True
    primitive.def_impl(run)
    ad.primitive_jvps[primitive] = jvp
    batching.primitive_batchers[primitive] = batch
    mlir.register_lowering(primitive, mlir.lower_fun(run, multiple_results=True))
    return primitive
