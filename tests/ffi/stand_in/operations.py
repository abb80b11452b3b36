"""The calls that public operations make: random problems of each, with any variant and option."""

from collections.abc import Iterator
from typing import Any

import jax
import jax.numpy as jnp
from ffi.stand_in.loaded import Call
from ffi.stand_in.lowered import calls_of
from fuzz import problems
from fuzz.settings import AnyOption
from fuzz.ways import floats_of

import jaxsparse as js

#: Stacks that are one launch on a Hopper GPU: (channels, layers).
STACKS = [(32, 1), (64, 3)]
#: Problems that exchange rows between devices run no handler of their own.
OPS = [op for op in problems.OPS if op != "dispatch"]
SEED = 1


def calls(count: int) -> Iterator[tuple[Call, str]]:
    """The calls of `count` problems of each operation and of their gradients, and the operation."""
    for number in range(count):
        for op in OPS:
            problem, drawn = problems.draw(op, SEED, number)
            floats, data = problem.draw(drawn.rng)
            policy = AnyOption(number) if number % 2 else None

            def value(floats: Any, data: Any, problem: Any = problem) -> Any:
                return problem.call(**floats, **data)

            def loss(floats: Any, data: Any, value: Any = value) -> Any:
                leaves = floats_of(value(floats, data))
                return sum((jnp.sum(v.astype(jnp.float32)) for v in leaves), start=jnp.float32(0))

            with js.config(policy=policy) if policy else js.config():
                found = calls_of(value, floats, data)
                if problem.smooth and floats:
                    found += calls_of(jax.grad(loss), floats, data)
            for call in found:
                yield call, op
    for dtype in (jnp.bfloat16, jnp.float16):
        for channels, layers in STACKS:
            for call in _stack(dtype, channels, layers):
                yield call, "masked_conv_stack"


def _stack(dtype: Any, channels: int, layers: int) -> list[Call]:
    x = jax.ShapeDtypeStruct((2, 32, 48, channels), dtype)
    kernels = [jax.ShapeDtypeStruct((3, 3, channels, channels), dtype)] * layers
    mask = jax.ShapeDtypeStruct(x.shape[:3], jnp.bool_)

    def run(x: Any, kernels: Any, mask: Any, bases: Any) -> Any:
        index = js.tile_index(mask, (8, 16))
        return js.masked_conv_stack(x, kernels, index, bases, activations="relu")

    return calls_of(run, x, kernels, mask, [x] * layers)
