"""How the ops on frozen weights run: an executor for each platform, vmap, the reference."""

import dataclasses
import functools
import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax
from jax.custom_batching import custom_vmap

from jaxsparse import select
from jaxsparse.core.activations import CODES
from jaxsparse.core.batching import fold, loop_over, unfold
from jaxsparse.core.checks import is_traced
from jaxsparse.core.geometry import Geometry
from jaxsparse.core.types import Shaped
from jaxsparse.ffi import Implementation, Rule, absent, dispatch, ffi_call, partitioned
from jaxsparse.pruned.emit.module import in_this_process
from jaxsparse.pruned.executor import Packed, Problem
from jaxsparse.pruned.executors.choice import EXECUTORS, packed
from jaxsparse.pruned.pattern import Pattern
from jaxsparse.pruned.plan import Tuned, dense_index
from jaxsparse.reference.pruned_conv import pruned_conv
from jaxsparse.reference.pruned_matmul import pruned_matmul
from jaxsparse.select.choice import Choice
from jaxsparse.select.config import settings
from jaxsparse.select.pruned import PrunedProblem, against
from jaxsparse.select.select import run as run_choice


class Frozen:
    """Values that are known when a function is traced; a part of its key by content. An array that
    may still be written to is copied.
    """

    def __init__(self, values: jax.Array | np.ndarray):
        host = np.asarray(values)
        if host is values and host.flags.writeable:
            host = values = host.copy()
        self.values = values
        content = np.ascontiguousarray(host).view(np.uint8).data
        self.digest = host.dtype.name, hashlib.sha256(content).digest()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Frozen) and self.digest == other.digest

    def __hash__(self) -> int:
        return hash(self.digest)


@dataclasses.dataclass(frozen=True)
class PrunedParams:
    """What is static about one call. `geometry` is None for a product; `frozen` holds the values
    where they are a constant; `called` is the op that the user called, where it is another.
    """

    pattern: Pattern
    geometry: Geometry | None
    channels_first: bool
    activation: str | None
    precision: str
    out_dtype: str
    implementation: Implementation = None
    tuned: tuple[Tuned, ...] = ()
    frozen: Frozen | None = None
    called: str | None = None

    @property
    def op(self) -> str:
        """The name of the op that runs."""
        return "pruned_matmul" if self.geometry is None else "pruned_conv"

    @property
    def asked(self) -> str:
        """The name of the op that the user called: a 1x1 convolution runs as a product."""
        return self.called or self.op

    def problem(self, platform: str, x: Shaped) -> Problem:
        """What the executors are asked; the shape of x in NHWC order."""
        shape = tuple(x.shape)
        if self.channels_first:
            shape = shape[0], shape[2], shape[3], shape[1]
        return Problem(
            self.pattern,
            platform,
            shape,
            x.dtype.name,
            self.out_dtype,
            self.precision,
            self.geometry,
            self.channels_first,
        )

    def out_shape(self, x: Shaped) -> tuple[int, ...]:
        """Of the result."""
        if self.geometry is None:
            return x.shape[0], self.pattern.n_out
        height, width = self.problem("cpu", x).out_hw
        if self.channels_first:
            return x.shape[0], self.pattern.n_out, height, width
        return x.shape[0], height, width, self.pattern.n_out


def product(p: PrunedParams) -> Callable[..., jax.Array]:
    """(x, values, bias) -> out with its vmap rule: images fold into the batch, many values loop."""

    alone = dispatch(
        p.op,
        p.implementation,
        cuda=functools.partial(_native, p, "cuda"),
        cpu=functools.partial(_native, p, "cpu"),
        reference=functools.partial(_reference, p),
    )
    split = partitioned(mesh_rule(p), alone, lambda _, x, values, bias: alone(x, values, bias))

    @custom_vmap
    def run(x: jax.Array, values: jax.Array, bias: jax.Array | None):
        return split(x, values, bias)

    @run.def_vmap
    def rule(
        axis_size: int,
        in_batched: Sequence[bool],
        x: jax.Array,
        values: jax.Array,
        bias: jax.Array | None,
    ):
        x_batched, *others = in_batched
        if any(jax.tree.leaves(others)) or not x_batched:
            return loop_over(product(p), (x, values, bias), in_batched), True
        folded = fold(x, True, axis_size)
        return unfold(product(p)(folded, values, bias), axis_size, x.shape[1]), True

    return run


def mesh_rule(p: PrunedParams) -> Rule:
    """A mesh splits rows, or images."""
    images = "b" + " ." * (1 if p.geometry is None else 3)
    why = f"the pattern of {p.asked}'s weights is one: a mesh splits the first axis of x only"
    return Rule(
        p.asked, (images, ".", "."), (images,), ("b",), ("x", "values", "bias"), why={".": why}
    )


def choose(
    p: PrunedParams, platform: str, x: Shaped, *, portable: bool = False
) -> tuple[Choice, dict[str, str], Any]:
    """The executor for a call, what speaks against the others, and measured tunables (or None).

    `p` and x as `pointwise` gives them; `portable`: what it runs may leave this process.
    """
    problem = problem_of(p, platform, x, portable=portable)
    choice = select.choose(p.asked, problem)
    measured = [t for t in p.tuned if _same(t, problem.call)]
    candidate = next((t.candidate for t in measured if t.executor == choice.first), None)
    return choice, against(problem), candidate


def problem_of(
    p: PrunedParams, platform: str, x: Shaped, *, portable: bool = False
) -> PrunedProblem:
    """What the choice for a call depends on."""
    call, pattern = p.problem(platform, x), p.pattern
    first = next((t for t in p.tuned if _same(t, call)), None)
    return PrunedProblem(
        p.asked,
        call,
        EXECUTORS[platform],
        (call.positions, pattern.n_in, pattern.n_out, pattern.entries, pattern.size),
        p.frozen is not None,
        None if first is None else first.executor,
        portable,
    )


def _same(tuned: Tuned, problem: Problem) -> bool:
    return (
        tuned.platform == problem.platform
        and tuned.x_shape == problem.x_shape
        and tuned.dtype == problem.dtype
        and tuned.geometry == problem.geometry
        and tuned.channels_first == problem.channels_first
        and (tuned.platform == "cpu" or tuned.precision == problem.precision)
    )


def _native(
    p: PrunedParams, platform: str, x: jax.Array, values: jax.Array, bias: jax.Array | None
) -> jax.Array:
    p, x, shape = pointwise(p, x)
    if 0 in shape:
        return jnp.zeros(shape, p.out_dtype)
    choice, _, candidate = choose(p, platform, x)
    elsewhere = None
    if not settings().demanded(p.asked):
        other, _, packing = choose(p, platform, x, portable=True)
        elsewhere = _executed(p, platform, x, other.first, packing)[0]
    branches: dict[str, Callable[..., jax.Array]] = {
        name: functools.partial(_branch, p, platform, name, candidate, elsewhere)
        for name in choice.names
    }
    run = run_choice(problem_of(p, platform, x).known, choice, branches, jnp.int32(0))
    return run(x, values, bias).reshape(shape)


def _branch(
    p: PrunedParams,
    platform: str,
    name: str,
    candidate: Any,
    elsewhere: Callable[..., jax.Array] | None,
    x: jax.Array,
    values: jax.Array,
    bias: jax.Array | None,
) -> jax.Array:
    """One executor; where it is lowered for another process, and may not leave this one,
    `elsewhere`.
    """
    run, owner = _executed(p, platform, x, name, candidate)
    if owner is None:
        return run(x, values, bias)
    return in_this_process(run, owner, elsewhere, x, values, bias)


def _executed(
    p: PrunedParams, platform: str, x: jax.Array, name: str, candidate: Any
) -> tuple[Callable[..., jax.Array], Any]:
    """(x, values, bias) -> out with an executor, and what must live as long."""
    if name == "dense":
        return functools.partial(_reference, p), None
    known = None if p.frozen is None else np.asarray(p.frozen.values)
    operands = packed(p.problem(platform, x), name, candidate, known)
    return functools.partial(call, p, operands), operands.owner


def pointwise(p: PrunedParams, x: jax.Array) -> tuple[PrunedParams, Any, tuple[int, ...]]:
    """The call that runs: a 1x1 window over every pixel is a product, or in NCHW an image of one
    row. Its parameters, its x, and the shape of the result that was asked for.
    """
    shape, geo = p.out_shape(x), p.geometry
    if geo is None or p.pattern.window != (1, 1):
        return p, x, shape
    plain = Geometry((1, 1), ((0, 0), (0, 0)), (1, 1), (1, 1), geo.groups)
    if dataclasses.replace(geo, dilation=(1, 1)) != plain:
        return p, x, shape
    if p.channels_first:
        flat = x.reshape(x.shape[0], x.shape[1], 1, x.shape[2] * x.shape[3])
        return dataclasses.replace(p, geometry=plain), flat, shape
    flat = x.reshape(x.shape[0] * x.shape[1] * x.shape[2], x.shape[3])
    return dataclasses.replace(p, geometry=None, called=p.asked), flat, shape


def call(
    p: PrunedParams, operands: Packed, x: jax.Array, values: jax.Array, bias: jax.Array | None
) -> jax.Array:
    """One call of the handler, with an executor's packed operands."""
    frozen = p.frozen.values if p.frozen is not None else values
    kept = _ordered(frozen, operands.order).astype(operands.value_dtype or x.dtype)
    attributes: dict[str, Any] = {
        "executor": operands.executor,
        "activation": CODES[p.activation],
        "precision": int(p.precision == "highest"),
        "tile": operands.tile,
        "block": operands.block,
        "parts": operands.parts,
        "code": operands.code,
    }
    if p.geometry is not None:
        attributes |= _window_attributes(p, p.geometry)
    out, _ = ffi_call(
        f"jaxsparse_{p.op}",
        [(p.out_shape(x), np.dtype(p.out_dtype)), ((operands.scratch,), np.uint8)],
        x,
        jnp.asarray(kept),
        absent(bias, np.float32),
        *(jnp.asarray(a) for a in (operands.starts, operands.indices, operands.rows)),
        jnp.asarray(operands.extra),
        **attributes,
    )
    return out


def _window_attributes(p: PrunedParams, geo: Geometry) -> dict[str, int]:
    kernel = p.pattern.window or (1, 1)
    named = {
        "kernel": kernel,
        "stride": geo.strides,
        "dilation": geo.dilation,
        "lhs_dilation": geo.lhs_dilation,
    }
    found = {f"{k}_{axis}": v[i] for k, v in named.items() for i, axis in enumerate("hw")}
    (top, _), (left, _) = geo.padding
    return found | {"pad_top": top, "pad_left": left, "channels_first": int(p.channels_first)}


def _ordered(values: jax.Array | np.ndarray, order: np.ndarray | None) -> Any:
    """`values` as an executor takes them; an entry -1 is a zero."""
    if order is None:
        return values
    if not is_traced(values):
        padded = np.concatenate([np.asarray(values), np.zeros(1, values.dtype)])
        return padded[order]
    return jnp.concatenate([values, jnp.zeros(1, values.dtype)])[order]


def _reference(
    p: PrunedParams, x: jax.Array, values: jax.Array, bias: jax.Array | None
) -> jax.Array:
    kept = np.asarray(p.frozen.values) if p.frozen is not None else values
    options = {
        "activation": p.activation,
        "precision": lax.Precision.HIGHEST if p.precision == "highest" else None,
        "out_dtype": np.dtype(p.out_dtype),
    }
    if p.geometry is None:
        where = dense_index(p.pattern, (p.pattern.n_in, p.pattern.n_out))
        return pruned_matmul(x, kept, where, p.pattern.n_out, bias, **options)
    shape = p.pattern.kernel_shape
    where = dense_index(p.pattern, shape)
    return pruned_conv(
        x, kept, where, shape, bias, p.geometry, channels_first=p.channels_first, **options
    )
