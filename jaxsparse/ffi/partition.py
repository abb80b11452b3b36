"""`partitioned`: a call that a mesh splits by itself.

Under plain `jit` on a mesh of Auto axes by `custom_partitioning`: XLA asks which shards a call
takes, and compiles the call of one shard. On Explicit axes by a `shard_map` over the operands' own
sharding. Inside a user's `shard_map`, and on one device, the call is what it is.
"""

import contextlib
import copy
import itertools
import math
import warnings
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
from jax.core import Tracer
from jax.experimental.custom_partitioning import (
    ArrayMapping,
    CompoundFactor,
    SdyShardingRule,
    custom_partitioning,
)
from jax.sharding import NamedSharding, PartitionSpec

from jaxsparse.ffi.call import lift
from jaxsparse.ffi.decode import spec_on
from jaxsparse.ffi.mesh import combine, is_explicit, mesh_in_force, off_mesh, on_mesh
from jaxsparse.ffi.rule import (
    Array,
    Axes,
    Cut,
    Rule,
    assign,
    divides_in_part,
    exchanged,
    parse,
    refusal,
    size_of,
    spec_for,
    spec_of,
    sums_over,
)

#: Each returns a context manager that restores, when a shard is traced, what is in force now.
_kept: list[Callable[[], Callable[[], contextlib.AbstractContextManager[Any]]]] = []
#: What is to live as long as the calls of the shards that are traced now.
_held: list[list[Any]] = []
#: Told of every operand that a call gathers: the op, and a sentence.
_listeners: list[Callable[[str, str], None]] = []


def keep(capture: Callable[[], Callable[[], contextlib.AbstractContextManager[Any]]]) -> None:
    """Have trace-time settings hold for the shards of a call, too, which are traced while XLA
    compiles: `capture()` is asked at the call.
    """
    _kept.append(capture)


def hold(owner: Any) -> None:
    """Keep `owner` alive as long as the compiled function, where a shard is traced: what that
    shard's own lowering keeps alive lives no longer than it.
    """
    if _held:
        _held[-1].append(owner)


def listen(listener: Callable[[str, str], None]) -> None:
    """Have `listener(op, sentence)` told of what calls communicate."""
    _listeners.append(listener)


class Shards(NamedTuple):
    """The mesh axes that each factor of a call is split over."""

    axes: Mapping[str, Axes]
    sizes: Mapping[str, int]

    def count(self, *factors: str) -> int:
        """How many shards there are along these factors together."""
        return math.prod(self.sizes[a] for f in factors for a in self.axes.get(f, ()))

    def place(self, factor: str) -> jax.Array | int:
        """int32[], which of them this is."""
        axes = self.axes.get(factor, ())
        return jax.lax.axis_index(axes) if axes else 0


def partitioned(
    rule: Rule,
    whole: Callable[..., Any],
    local: Callable[..., Any],
    *,
    pack: Callable[..., tuple[Any, ...]] | None = None,
) -> Callable[..., Any]:
    """A function that runs `whole(*arguments)`, or on each shard of a mesh `local(shards,
    *arguments)`.

    Args:
        rule: names the factors of each argument. An argument is an array or None, or where the rule
            says None any pytree, in place of which `local` gets None.
        whole: to an array or a tuple of them.
        local: the same of a shard's arrays.
        pack: makes the arguments of `whole` of these; None: it takes these.

    Raises:
        ValueError: on an Explicit mesh, for an axis that cannot be split, naming the argument.
    """
    unsplit = whole if pack is None else lambda *a: whole(*pack(*a))

    def run(*arguments: Any) -> Any:
        call = _Call(rule, unsplit, local, arguments)
        mesh = next((mesh_in_force(array) for array in call.visible if is_explicit(array)), None)
        if mesh is not None:
            return call.on_mixed(mesh) if mesh.auto_axes else call.on_explicit(mesh)
        if _alone(call.visible):
            return unsplit(*arguments)
        return call.on_auto()

    return run


def over_explicit(
    rule: Rule, whole: Callable[..., Any], local: Callable[..., Any]
) -> Callable[..., Any]:
    """As `partitioned`, for a call that XLA splits by itself on Auto axes, because it is made of
    XLA's own operations; it can be differentiated.
    """

    def run(*arguments: Any) -> Any:
        call = _Call(rule, whole, local, arguments)
        mesh = next((mesh_in_force(array) for array in call.visible if is_explicit(array)), None)
        return whole(*map(on_mesh, arguments)) if mesh is None else call.on_explicit(mesh)

    return run


def _alone(leaves: Sequence[Any]) -> bool:
    """Nothing to split: no elements, one device, a mesh of the user's own axes, or no jit."""
    no_jit = jax.config.jax_disable_jit  # pyright: ignore[reportAttributeAccessIssue]
    if 0 in leaves[0].shape or no_jit:
        return True
    mesh = jax.sharding.get_abstract_mesh()
    if mesh.manual_axes or (mesh.explicit_axes and not mesh.auto_axes):
        return True
    return not _traced(leaves) and all(
        len(leaf.sharding.device_set) == 1 for leaf in leaves if isinstance(leaf, jax.Array)
    )


def _spec(mesh: Any, value: Any) -> tuple[Any, ...]:
    sharding = value.sharding
    return () if sharding is None else tuple(spec_on(mesh, sharding, len(value.shape)))


def _traced(leaves: Sequence[Any]) -> bool:
    return any(isinstance(leaf, Tracer) for leaf in leaves)


class _Call:
    """One call: the arrays that shards get (`visible`) and those that stay behind (`hidden`)."""

    def __init__(
        self,
        rule: Rule,
        whole: Callable[..., Any],
        local: Callable[..., Any],
        arguments: Sequence[Any],
    ):
        self.rule, self.whole, self.local = rule, whole, local
        given = list(zip(rule.names, rule.operands, arguments, strict=True))
        self.places = [i for i, (_, t, a) in enumerate(given) if t is not None and a is not None]
        self.visible = [arguments[i] for i in self.places]
        self.names = [rule.names[i] for i in self.places]
        self.factors = [parse(rule.operands[i] or "") for i in self.places]
        left = {i: arguments[i] for i, (_, text, _) in enumerate(given) if text is None}
        self.hidden, self.tree = jax.tree.flatten(left)
        self.results = [parse(text) for text in rule.results]

    def _run(self, leaves: Sequence[Any]) -> tuple[jax.Array, ...]:
        n = len(self.visible)
        out = self.whole(*self._arguments(leaves[:n], jax.tree.unflatten(self.tree, leaves[n:])))
        return tuple(out) if isinstance(out, (tuple, list)) else (out,)

    def _arguments(self, visible: Sequence[Any], hidden: Mapping[int, Any]) -> list[Any]:
        placed = dict(zip(self.places, visible, strict=True)) | dict(hidden)
        return [placed.get(i) for i in range(len(self.rule.operands))]

    def _unwrap(self, out: Sequence[Any]) -> Any:
        return out[0] if len(self.results) == 1 else tuple(out)

    def _arrays(self, shapes: Sequence[Any], specs: Sequence[Any]) -> list[Array]:
        rows = zip(self.names, self.factors, shapes, specs, strict=True)
        return [Array(n, f, tuple(v.shape), spec_of(s, len(v.shape))) for n, f, v, s in rows]

    def _in_shard(
        self, chosen: Mapping[str, Axes], sizes: Mapping[str, int], visible: Sequence[Any]
    ) -> list[jax.Array]:
        """A shard's results, summed over the shards where that is still to be done."""
        out = self.local(Shards(chosen, sizes), *self._arguments(visible, {}))
        out = tuple(out) if isinstance(out, (tuple, list)) else (out,)
        return [
            self._rounded(combine(value, sums_over(factors, chosen), i in self.rule.least))
            for i, (value, factors) in enumerate(zip(out, self.results, strict=True))
        ]

    def _rounded(self, value: jax.Array) -> jax.Array:
        floats = self.rule.dtype is not None and jnp.issubdtype(value.dtype, jnp.floating)
        return value.astype(self.rule.dtype) if floats else value

    def _over_explicit(self, mesh: Any) -> tuple[Any, list[PartitionSpec], list[jax.Array]]:
        """The Explicit axes of each factor, and the operands as they are to be sharded."""
        specs = [jax.typeof(array).sharding.spec for array in self.visible]
        arrays = self._arrays(self.visible, specs)
        chosen, cuts = assign(self.rule, arrays, [], dict(mesh.shape))
        if cuts:
            raise ValueError(refusal(self.rule, cuts[0]))
        wanted = [spec_for(factors, chosen) for factors in self.factors]
        arrays = [
            jax.sharding.reshard(array, NamedSharding(mesh, spec))
            for array, spec in zip(self.visible, wanted, strict=True)
        ]
        return chosen, wanted, arrays

    def on_mixed(self, mesh: Any) -> Any:
        """On a mesh of Explicit and Auto axes: as XLA asks, over all of them, where the types of
        the results say what the Explicit ones split.
        """
        chosen, _, arrays = self._over_explicit(mesh)
        n = len(arrays)

        def call(*leaves: Any) -> tuple[jax.Array, ...]:
            inner = copy.copy(self)
            inner.visible, inner.hidden = list(leaves[:n]), list(leaves[n:])
            out = inner.on_auto()
            return out if isinstance(out, tuple) else (out,)

        run: Any = jax.sharding.auto_axes(
            call,
            axes=tuple(mesh.explicit_axes),
            out_sharding=tuple(NamedSharding(mesh, spec_for(f, chosen)) for f in self.results),
        )
        return self._unwrap(run(*arrays, *self.hidden))

    def on_explicit(self, mesh: Any) -> Any:
        """Over the operands' own Explicit axes."""
        sizes = dict(mesh.shape)
        chosen, wanted, arrays = self._over_explicit(mesh)
        _tell(self.rule, (), chosen)

        def shard(*visible: jax.Array) -> tuple[jax.Array, ...]:
            return tuple(self._in_shard(chosen, sizes, lift(*visible)))

        out = jax.shard_map(
            shard,
            mesh=mesh,
            in_specs=tuple(wanted),
            out_specs=tuple(spec_for(factors, chosen) for factors in self.results),
            axis_names=frozenset(mesh.explicit_axes),
        )(*arrays)
        return self._unwrap(out)

    def on_auto(self) -> Any:
        """As XLA asks, when it compiles for a mesh."""
        restore = [capture() for capture in _kept]
        leaves = (*self.visible, *self.hidden)

        def whole(*leaves: Any) -> Any:
            return self._run(leaves)

        whole.__name__ = self.rule.op
        # Inside of its own jit: custom_partitioning takes no function that captures constants.
        split = custom_partitioning(jax.jit(whole))

        alive: list[Any] = []

        def partition(mesh: Any, given: Any, results: Any) -> Any:
            chosen, cuts = self._assigned(mesh, given, results)
            sizes, n = dict(mesh.shape), len(self.visible)

            def shard(*leaves: Any) -> tuple[jax.Array, ...]:
                with contextlib.ExitStack() as stack:
                    _held.append(alive)
                    stack.callback(_held.pop)
                    for setting in restore:
                        stack.enter_context(setting())
                    here = off_mesh(stack, leaves[:n])
                    return tuple(self._in_shard(chosen, sizes, here))

            with contextlib.ExitStack() as stack:
                for setting in restore:
                    stack.enter_context(setting())
                _tell(self.rule, cuts, chosen)
            wanted = tuple(NamedSharding(mesh, spec_for(f, chosen)) for f in self.factors)
            left = (leaf.sharding for leaf in given[n:])
            return mesh, shard, self._result(mesh, chosen), (*wanted, *left)

        def infer(mesh: Any, given: Any, results: Any) -> Any:
            return self._result(mesh, self._assigned(mesh, given, ())[0])

        split.def_partition(
            partition=partition,
            infer_sharding_from_operands=infer,
            decode_shardings=False,  # it fails where a mesh axis is split
            sharding_rule=lambda mesh, operands, results: self._shardy(mesh, results),
        )
        run = split if _traced(leaves) else jax.jit(split)
        return self._unwrap(run(*leaves))

    def _assigned(self, mesh: Any, given: Any, results: Any) -> tuple[dict[str, Axes], list[Cut]]:
        specs = [_spec(mesh, v) for v in given[: len(self.visible)]]
        wanted = [
            Array("the result", f, tuple(v.shape), spec_of(_spec(mesh, v), len(v.shape)))
            for f, v in zip(self.results, results, strict=False)
        ]
        operands = self._arrays(given[: len(self.visible)], specs)
        return assign(self.rule, operands, wanted, dict(mesh.shape))

    def _result(self, mesh: Any, chosen: Mapping[str, Axes]) -> tuple[NamedSharding, ...]:
        return tuple(NamedSharding(mesh, spec_for(factors, chosen)) for factors in self.results)

    def _shardy(self, mesh: Any, results: Any) -> SdyShardingRule:
        """The rule for XLA's propagation: factors that are not split have a name of their own."""
        alone = (f"whole{i}" for i in itertools.count())
        shapes = [*(v.shape for v in self.visible), *(r.shape for r in results)]
        factors = [*self.factors, *self.results]
        each = zip(factors, shapes, strict=True)
        pairs = [pair for axes, shape in each for pair in zip(axes, shape, strict=True)]
        sizes = {name: size_of(name, pairs) or 1 for name in self.rule.splits}
        lengths = {name: [n for names, n in pairs if names[0] == name] for name in sizes}
        over = mesh.shape.values()
        in_part = {n for n, size in sizes.items() if divides_in_part(size, lengths[n], over)}
        known: dict[str, int] = {}  # of the factors in compounds
        stated: set[str] = set()  # by an axis of their own

        def axis(names: Axes, n: int) -> Any:
            if names[0] not in self.rule.splits or names[0] in in_part:
                return next(alone)
            size = sizes[names[0]]
            if len(names) == 1 or n == size:
                stated.add(names[0])
                return names[0]
            inner = next(alone)
            if size == 1:  # a factor of 1 stands alone, or nowhere
                return inner
            known.update({names[0]: size, inner: n // size})
            return CompoundFactor(names[0], inner)

        maps = [
            ArrayMapping(*(axis(f, n) for f, n in zip(axes, shape, strict=True)))
            for shape, axes in zip(shapes, factors, strict=True)
        ]
        at = len(self.visible)
        hidden = [ArrayMapping(*(next(alone) for _ in leaf.shape)) for leaf in self.hidden]
        told: Any = {name: size for name, size in known.items() if name not in stated}
        return SdyShardingRule((*maps[:at], *hidden), tuple(maps[at:]), **told)


def _tell(rule: Rule, cuts: Sequence[Cut], chosen: Mapping[str, Axes]) -> None:
    """Of what is gathered tell the listeners, and where no other sharding of the operands would
    spare it, a warning; of what the shards exchange, the listeners.
    """
    for factor, axes in exchanged(rule, chosen):
        for listener in _listeners:
            listener(rule.op, f"over mesh axis {', '.join(map(repr, axes))} {rule.told[factor]}")
    for cut in cuts:
        said = f"{cut.place(rule.from_end)} and is gathered: {cut.reason}"
        for listener in _listeners:
            listener(rule.op, said)
        if cut.known:
            more = "what each op splits, and how to split it by hand: docs/tasks/sharding.md"
            warnings.warn(f"{rule.op}: {said}; {more}", RuntimeWarning, stacklevel=2)
