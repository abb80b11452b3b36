"""What the op suite needs to know of an op (`OpSpec`), and how its results are compared.

Operands are a dict from names to pytrees of numpy arrays. What is static and differs from draw to
draw (a pruning pattern) goes in as `Fixed`, a pytree without leaves.
"""

import dataclasses
import functools
from collections.abc import Callable, Mapping
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

TOLERANCE = {"float32": 2e-5, "bfloat16": 2e-2, "float16": 3e-3}
TF32 = 2e-3
Operands = dict[str, Any]
Arrays = Mapping[str, Any]
BadCall = tuple[Mapping[str, Any], type[Exception], str]


@jax.tree_util.register_static
@dataclasses.dataclass(frozen=True, eq=False)
class Fixed:
    """A static operand; two are equal when they are the same object."""

    value: Any


@dataclasses.dataclass(frozen=True, eq=False)
class OpSpec:
    """An op as the suite sees it.

    Attributes:
        name: of the op, for reports.
        serves: the public functions that `apply` runs.
        draw: (rng, fill) -> operands. `fill` is the share of the work that is there: 0 is the empty
            mask, 1 the full one. Shapes and dtypes do not depend on it.
        apply: (operands, implementation) -> a pytree of arrays.
        oracle: operands -> the same pytree in numpy, float64; shares no code with the package.
        floats: operands that take 16-bit dtypes and are differentiated.
        sharded: operands that a device mesh splits by their first axis, one draw a device; the
            others are the same on all devices. A scan runs over them, too.
        empty: rng -> operands of which an axis has no elements.
        unread: operands -> for some of them a bool array, true where an entry is never read.
        overflow: rng -> (operands that do not fit their capacity, what results, and the words with
            which `js.checked()` raises, or None where the result itself holds the flag).
        call: the public function by keywords, with operands that are right where none are given.
        bad: name -> (changed keywords, exception, regular expression for the message: the argument
            and what it takes).
        scale: of the tolerances.
        result: the dtype of float results, where it is not that of the operands.
        fills: shares of work that one trace serves.
        split: how a mesh splits the op under plain jit (`op_sharding.Split`).
        inapplicable: check -> why it does not apply.
    """

    name: str
    serves: tuple[Callable[..., Any], ...]
    draw: Callable[[np.random.Generator, float], Operands]
    apply: Callable[[Operands, Any], Any]
    oracle: Callable[[Operands], Any]
    floats: tuple[str, ...] = ()
    sharded: frozenset[str] = frozenset()
    empty: Callable[[np.random.Generator], Operands] | None = None
    unread: Callable[[Operands], Mapping[str, np.ndarray]] | None = None
    overflow: Callable[[np.random.Generator], tuple[Operands, Any, str | None]] | None = None
    call: Callable[..., Any] | None = None
    bad: Mapping[str, BadCall] = dataclasses.field(default_factory=dict)
    scale: float = 1.0
    result: str | None = None
    fills: tuple[float, ...] = (0.4, 0.0, 1.0)
    split: Any = None
    inapplicable: Mapping[str, str] = dataclasses.field(default_factory=dict)

    @property
    def differentiable(self) -> bool:
        """Whether the gradient is checked."""
        return bool(self.floats) and "gradient" not in self.inapplicable


def bound(dtype: str) -> float:
    """The largest error that a result may have, as a share of its largest value."""
    return TF32 if dtype == "float32" and jax.default_backend() == "gpu" else TOLERANCE[dtype]


def assert_close(got: Any, want: Any, dtype: str, scale: float = 1.0) -> None:
    """Largest error over the largest value; nothing may be NaN."""
    got, want = np.asarray(got, np.float64), np.asarray(want, np.float64)
    assert got.shape == want.shape
    assert np.isfinite(got).all()
    limit = scale * bound(dtype) * max(1.0, np.abs(want).max(initial=0.0))
    assert np.abs(got - want).max(initial=0.0) <= limit


def assert_tree(got: Any, want: Any, dtype: str, scale: float = 1.0) -> None:
    """`assert_close` for float leaves; integers and bools are equal."""
    leaves, tree = jax.tree.flatten(got)
    wanted, other = jax.tree.flatten(want)
    assert len(leaves) == len(wanted), f"{tree} is not {other}"
    for one, all_of in zip(leaves, wanted, strict=True):
        if jnp.issubdtype(one.dtype, jnp.floating):
            assert_close(one, all_of, dtype, scale)
        else:
            np.testing.assert_array_equal(np.asarray(one), np.asarray(all_of))


def cast(arrays: Arrays, dtype: str) -> dict[str, jax.Array]:
    """Every array, as jax's, of this dtype. numpy rounds: nothing is compiled for that."""
    return {
        k: v.astype(dtype) if isinstance(v, jax.Array) else jnp.asarray(np.asarray(v, dtype))
        for k, v in arrays.items()
    }


def rounded(arrays: Arrays, dtype: str) -> dict[str, np.ndarray]:
    """What `cast` makes of the arrays, float64."""
    return {k: np.asarray(v).astype(dtype).astype(np.float64) for k, v in arrays.items()}


def placed(spec: OpSpec, operands: Operands, dtype: str = "float32") -> Operands:
    """The operands as jax's arrays, with the spec's floats of this dtype."""
    return {
        name: jax.tree.map(
            lambda v, name=name: jnp.asarray(v.astype(dtype) if name in spec.floats else v), value
        )
        for name, value in operands.items()
    }


def exact(spec: OpSpec, operands: Operands, dtype: str) -> Operands:
    """The operands in numpy as `placed` rounds them, floats as float64."""
    return {
        name: jax.tree.map(lambda v: v.astype(dtype).astype(np.float64), value)
        if name in spec.floats
        else value
        for name, value in operands.items()
    }


def stack(*trees: Any) -> Any:
    """Pytrees of arrays with a new leading axis."""
    return jax.tree.map(lambda *v: jnp.stack(v), *trees)


def pick(tree: Any, i: int) -> Any:
    """Entry i of every leaf's leading axis."""
    return jax.tree.map(lambda v: v[i], tree)


def like_dense(x: jax.Array, kernel: jax.Array, options: Mapping[str, Any]) -> Any:
    """Shape and dtype of the dense convolution with these options of `masked_conv`."""
    return jax.eval_shape(
        lambda x, k: jax.lax.conv_general_dilated(
            x,
            k,
            options.get("strides", (1, 1)),
            options.get("padding", "SAME"),
            rhs_dilation=options.get("dilation", (1, 1)),
            dimension_numbers=("NHWC", "HWIO", "NHWC"),
        ),
        x,
        kernel,
    )


class Compiled:
    """A jitted function that counts its traces."""

    def __init__(self, function: Callable[..., Any]):
        self.traces = 0

        def traced(*args: Any) -> Any:
            self.traces += 1
            return function(*args)

        self._run = jax.jit(traced)

    def __call__(self, *args: Any) -> Any:
        return self._run(*args)


@functools.cache
def forward(spec: OpSpec, implementation: str) -> Compiled:
    """operands -> result, compiled once for all checks."""
    return Compiled(lambda operands: spec.apply(operands, implementation))


def weighed(result: Any, weights: Any) -> jax.Array:
    """The sum of the sines of the float results times the weights."""
    total = jnp.float32(0)
    for value, weight in zip(float_leaves(result), weights, strict=True):
        total += jnp.sum(jnp.sin(value.astype(jnp.float32)) * weight)
    return total


def float_leaves(result: Any) -> list[Any]:
    """The leaves that are floats."""
    return [v for v in jax.tree.leaves(result) if jnp.issubdtype(v.dtype, jnp.floating)]


def loss_of(spec: OpSpec, implementation: str) -> Callable[..., Any]:
    """(floats, rest, weights) -> the weighed sum, and the result itself."""

    def loss(floats: Operands, rest: Operands, weights: Any) -> tuple[jax.Array, Any]:
        result = spec.apply({**rest, **floats}, implementation)
        return weighed(result, weights), result

    return loss


@functools.cache
def gradient(spec: OpSpec, implementation: str) -> Compiled:
    """(floats, rest, weights) -> ((weighed sum, result), gradients), compiled once."""
    return Compiled(jax.value_and_grad(loss_of(spec, implementation), has_aux=True))


def split(spec: OpSpec, operands: Operands) -> tuple[Operands, Operands]:
    """The operands that are differentiated, and the others."""
    return (
        {k: v for k, v in operands.items() if k in spec.floats},
        {k: v for k, v in operands.items() if k not in spec.floats},
    )


def weights_for(spec: OpSpec, operands: Operands, rng: np.random.Generator) -> list[np.ndarray]:
    """Weights for `weighed`, of the shapes of the float results."""
    return [
        rng.standard_normal(v.shape).astype(np.float32)
        for v in float_leaves(
            jax.tree.map(np.asarray, spec.oracle(exact(spec, operands, "float32")))
        )
    ]


def numeric(spec: OpSpec, weights: Any) -> Callable[[Operands], float]:
    """operands in float64 -> the weighed sum of sines, by the oracle."""

    def loss(operands: Operands) -> float:
        values = float_leaves(jax.tree.map(np.asarray, spec.oracle(operands)))
        return sum(float((np.sin(v) * w).sum()) for v, w in zip(values, weights, strict=True))

    return loss


def moved(operands: Operands, *steps: tuple[float, Operands]) -> Operands:
    """operands + sum of step * direction, for the operands that directions name."""
    for size, direction in steps:
        operands = {
            name: jax.tree.map(lambda v, d, size=size: v + size * d, value, direction[name])
            if name in direction
            else value
            for name, value in operands.items()
        }
    return operands


def direction_of(operands: Operands, rng: np.random.Generator) -> Operands:
    """A random direction, float64."""
    return jax.tree.map(lambda v: rng.standard_normal(np.shape(v)), operands)


def inner(a: Any, b: Any) -> float:
    """The inner product of two pytrees in float64."""
    pairs = zip(jax.tree.leaves(a), jax.tree.leaves(b), strict=True)
    return sum(
        float((np.asarray(x, np.float64) * np.asarray(y, np.float64)).sum()) for x, y in pairs
    )


def norm(a: Any) -> float:
    return inner(a, a) ** 0.5
