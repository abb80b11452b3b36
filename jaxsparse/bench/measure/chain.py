"""A jitted chain of calls on distinct inputs, with nothing in it but the calls.

Inputs and outputs live in buffers that are donated and come back, so that no call allocates or
copies. Outputs are whole, so nothing of a call can be left out; they are compared with the
reference after each run and then overwritten with NaN, so that what was not computed cannot pass.
On a CPU, where XLA would run independent calls side by side, each input waits for the call before
it.
"""

import concurrent.futures
import contextlib
import functools
import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

#: Largest error over the largest value (at least 1) that passes, by dtype: sums are in float32.
TOLERANCE = {"float32": 2e-5, "highest": 2e-5, "bfloat16": 2e-2, "float16": 3e-3}
TF32_TOLERANCE = 2e-3
#: (call number, x, operands) -> an array, or a pytree of arrays (gradients).
Call = Callable[[int, jax.Array, Any], Any]


def tolerance(dtype: str, platform: str) -> float:
    """The bound on the error of `dtype` ("highest" is float32 multiplied in float32) on "cpu" or
    "cuda".
    """
    return TF32_TOLERANCE if (dtype, platform) == ("float32", "cuda") else TOLERANCE[dtype]


class Pool:
    """The sets of inputs that the sides of one comparison share, and what each call must give.

    Args:
        draw: draw(seed) -> one input array.
        reference: (x, mask, operands) -> what a call must give, an array or a pytree of arrays. It
            is run once per input, untimed.
        operands: a pytree that every call gets; its arrays are read by calls and never written.
        masks: what each call of a chain has of its own, a chain is as long as this: the mask
            bool[B, Ho, Wo] of a convolution, any pytree where all of a result is compared.
        sets: how many chains' worth of distinct inputs.
        repeats: how often a chain does its calls, in a loop inside of it: for short calls, so that
            what is paid once a chain does not count.
    """

    def __init__(
        self,
        draw: Callable[[int], jax.Array],
        reference: Callable[[jax.Array, Any, Any], Any],
        operands: Any,
        masks: Sequence[Any],
        *,
        sets: int = 1,
        repeats: int = 1,
    ):
        self.calls, self.sets, self.repeats = len(masks), sets, repeats
        self._draw = draw
        # What is never timed need not be tuned: XLA would time every algorithm of a convolution.
        untuned = {"xla_gpu_autotune_level": 0} if jax.default_backend() == "gpu" else None
        self._want = jax.jit(
            lambda *args: jax.tree.map(lambda v: v.astype(jnp.float32), reference(*args)),
            compiler_options=untuned,
        )
        self.reset()
        self.load(operands, masks)

    def load(
        self,
        operands: Any,
        masks: Sequence[Any],
        draw: Callable[[int], jax.Array] | None = None,
    ) -> None:
        """Other operands and masks of the same shapes, and other inputs where `draw` is given: the
        sides keep what they compiled.
        """
        if draw is not None:
            self._draw = draw
            self.reset()
        self.operands, self.masks = operands, tuple(masks)
        self.wants = [
            tuple(self._want(x, m, operands) for x, m in zip(xs, masks, strict=True))
            for xs in self.xs
        ]

    def reset(self) -> None:
        """Draw every input again: a chain that failed has taken its buffers with it."""
        numbers = range(self.calls)
        self.xs = [tuple(self._draw(s * self.calls + i) for i in numbers) for s in range(self.sets)]
        self._outs: dict[tuple[Any, ...], tuple[Any, ...]] = {}

    @property
    def rotated_bytes(self) -> int:
        """Bytes of distinct inputs that a side goes through before it meets one again."""
        return sum(x.nbytes for xs in self.xs for x in xs)

    def ends(self) -> list[jax.Array]:
        """The last result of each chain that ran: all of a chain is done when one result is."""
        return [outs[-1] for outs in self._outs.values()]

    def outs(self, which: int, like: Any) -> tuple[Any, ...]:
        """The output buffers of a set, full of NaN unless a chain has just run; `like` is a
        result's pytree of dtypes.
        """
        key = which, *_names(like)
        if key not in self._outs:
            self._outs[key] = tuple(
                jax.tree.map(lambda d, w: jnp.full(w.shape, jnp.nan, d), like, want)
                for want in self.wants[which]
            )
        return self._outs[key]

    def put(self, which: int, like: Any, outs: tuple[Any, ...]) -> None:
        """Give buffers back."""
        self._outs[which, *_names(like)] = outs


def _names(dtypes: Any) -> tuple[str, ...]:
    return tuple(np.dtype(d).name for d in jax.tree.leaves(dtypes))


class ChainSide:
    """One way of doing the calls of a pool: a `Side` for `interleave`.

    Args:
        name: of the side.
        pool: shared by all sides.
        call: (call number, x, operands) -> out, traced inside the chain.
        prepare: operands -> a pytree of what the calls of one chain share; what `call` gets in the
            operands' place.
        settings: a context manager around tracing and running (`js.config`).
        everywhere: compare all pixels; otherwise the active ones only.
        late: leave the compilation to `compile`, so that several may compile at once.

    Raises:
        What tracing or compiling `call` raises.
    """

    def __init__(
        self,
        name: str,
        pool: Pool,
        call: Call,
        *,
        prepare: Callable[[Any], Any] = lambda operands: operands,
        settings: Callable[[], contextlib.AbstractContextManager[Any]] = contextlib.nullcontext,
        everywhere: bool = True,
        late: bool = False,
    ):
        self.name, self.pool, self.sets = name, pool, pool.sets
        self.calls = pool.calls * pool.repeats
        self._everywhere = everywhere
        self._never = jnp.float32(math.inf)
        with settings():
            first = functools.partial(_first, call, prepare)
            shapes = jax.eval_shape(first, pool.xs[0][0], pool.operands)
            self.dtype = jax.tree.map(lambda v: v.dtype, shapes)
            linked = jax.default_backend() == "cpu"
            chain = jax.jit(
                functools.partial(_chain, call, prepare, linked, pool.repeats),
                donate_argnums=(0, 1),
                keep_unused=True,
            )
            self._lowered = chain.lower(*self._arguments(0))
        if not late:
            self.compile()

    def compile(self) -> None:
        """Compile the chain. Several sides may do so at once, in a thread each."""
        self.compiled = self._lowered.compile()

    def _arguments(self, which: int) -> tuple[Any, ...]:
        outs = self.pool.outs(which, self.dtype)
        return self.pool.xs[which], outs, self.pool.operands, self._never

    def enqueue(self, which: int) -> None:
        """Start the chain on set `which`."""
        with self._resetting():
            xs, outs = self.compiled(*self._arguments(which))
        self.pool.xs[which] = xs
        self.pool.put(which, self.dtype, outs)

    def wait(self) -> None:
        """Wait for everything that was started."""
        with self._resetting():
            jax.block_until_ready(self.pool.ends())

    @contextlib.contextmanager
    def _resetting(self) -> Iterator[None]:
        try:
            yield
        except Exception:
            self.pool.reset()
            raise

    def error(self, which: int) -> float:
        """The worst error of the last chain on set `which`, and NaN in its buffers after that."""
        pool = self.pool
        outs = pool.outs(which, self.dtype)
        worst = worst_error(outs, pool.wants[which], pool.masks, everywhere=self._everywhere)
        pool.put(which, self.dtype, _spoil(outs))
        return float(worst)


def _first(call: Call, prepare: Callable[[Any], Any], x: jax.Array, operands: Any) -> Any:
    return call(0, x, prepare(operands))


def _chain(
    call: Call,
    prepare: Callable[[Any], Any],
    linked: bool,
    repeats: int,
    xs: tuple[jax.Array, ...],
    outs: tuple[Any, ...],
    operands: Any,
    never: jax.Array,
) -> tuple[tuple[jax.Array, ...], tuple[Any, ...]]:
    """All calls of one set, `repeats` times. `outs` only lends its buffers; `never` is inf, which
    the compiler cannot know.
    """
    if repeats == 1:
        return _once(call, prepare, linked, xs, operands, never)

    def again(_: jax.Array, carry: tuple[Any, Any]) -> tuple[Any, Any]:
        # What a round reads depends on the round before it, or XLA would hoist it out of the loop.
        inputs, _, shared = jax.lax.optimization_barrier((*carry, operands))
        return _once(call, prepare, linked, inputs, shared, never)

    return jax.lax.fori_loop(0, repeats, again, (xs, outs))


def _once(
    call: Call,
    prepare: Callable[[Any], Any],
    linked: bool,
    xs: tuple[jax.Array, ...],
    operands: Any,
    never: jax.Array,
) -> tuple[tuple[jax.Array, ...], tuple[Any, ...]]:
    shared = prepare(operands)
    inputs, results = [], []
    for i, x in enumerate(xs):
        if linked and results and x.size:
            x = _after(x, results[-1], never)
        inputs.append(x)
        results.append(call(i, x, shared))
    return tuple(inputs), tuple(results)


def _after(x: jax.Array, results: Any, never: jax.Array) -> jax.Array:
    """`x`, for the compiler a value that needs `results`: of a loop without a round. A single
    update of `x` would be fused with its reshapes, and copy all of it.
    """
    firsts = [v[(0,) * v.ndim].astype(jnp.float32) for v in jax.tree.leaves(results) if v.size]
    rounds = sum(((first > never).astype(jnp.int32) for first in firsts), jnp.int32(0))
    return jax.lax.fori_loop(0, rounds, lambda _, v: v.at[(0,) * v.ndim].add(v.dtype.type(1)), x)


def worst_error(
    outs: tuple[Any, ...], wants: tuple[Any, ...], masks: tuple[Any, ...], *, everywhere: bool
) -> jax.Array:
    """The worst error over the largest value (at least 1) of an array; inf for NaN.

    The results of one call after the other's, and in other programs than `_spoil`: compared and
    overwritten in one program, small results have wrong errors on a GPU (jax 0.11.2).

    Args:
        outs: what each call gave, arrays or pytrees of arrays.
        wants: what it must give.
        masks: bool[B, Ho, Wo] of each call; not read when everything is compared.
        everywhere: compare all pixels; otherwise the active ones only.
    """
    found = [
        _error(out, want, None if everywhere else mask)
        for made, wanted, mask in zip(outs, wants, masks, strict=True)
        for out, want in zip(jax.tree.leaves(made), jax.tree.leaves(wanted), strict=True)
    ]
    return functools.reduce(jnp.maximum, found, jnp.float32(0))


@jax.jit
def _error(out: jax.Array, want: jax.Array, mask: jax.Array | None) -> jax.Array:
    got = out.astype(jnp.float32)
    if mask is not None:
        got = jnp.where(mask[..., None], got, jnp.zeros_like(got))
    scale = jnp.maximum(jnp.abs(want).max(initial=0.0), 1.0)
    error = jnp.abs(got - want).max(initial=0.0) / scale
    return jnp.where(jnp.isnan(error), jnp.inf, error)


def compile_all(sides: Sequence[Any], threads: int) -> dict[str, str]:
    """Compile the sides that are `ChainSide`s made with `late`: the first, then the others, several
    at once; name -> why for those that do not compile. What XLA finds by timing an operation of the
    first it takes for the same one in the others.
    """
    late = [side for side in sides if isinstance(side, ChainSide)]
    failures = {}
    with concurrent.futures.ThreadPoolExecutor(max(threads, 1)) as pool:
        for part in (late[:1], late[1:]):
            for side, done in [(side, pool.submit(side.compile)) for side in part]:
                try:
                    done.result()
                except Exception as error:  # one side's failure is a result; the others still run
                    failures[side.name] = f"{type(error).__name__}: {error}"
    return failures


@functools.partial(jax.jit, donate_argnums=0)
def _spoil(outs: tuple[Any, ...]) -> tuple[Any, ...]:
    """`outs` full of NaN, in their own buffers."""
    return jax.tree.map(lambda each: jnp.full_like(each, jnp.nan), outs)
