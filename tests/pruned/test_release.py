"""A frozen weight that is dropped is freed, with everything that was made of it; so is a function
that was compiled.
"""

import gc
import weakref
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.ffi.register import module
from jaxsparse.select.choice import remember


def resident() -> float:
    """Megabytes of this process."""
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096 / 1e6


def weight(seed: int, n: int) -> js.PrunedWeight:
    w = np.random.default_rng(seed).standard_normal((n, n)).astype(np.float32)
    return js.pruned.inspect(np.where(np.abs(w) > 1.65, w, 0))


def used(seed: int, x: jax.Array) -> list[weakref.ref]:
    """Makes a weight, runs it as a constant of a jitted function and without one, and drops it."""
    pruned = weight(seed, x.shape[1])
    jax.block_until_ready(jax.jit(lambda x: js.pruned_matmul(x, pruned))(x))
    if seed % 5 == 0:
        jax.block_until_ready(js.pruned_matmul(x, pruned))
        jax.block_until_ready(jax.jit(jax.grad(lambda x: js.pruned_matmul(x, pruned).sum()))(x))
    return [weakref.ref(pruned), weakref.ref(pruned.pattern)]


@pytest.mark.skipif(module("cpu")[0] is None, reason="no CPU module")
def test_forty_dropped_weights_leave_memory_flat():
    """Each takes 8 MB: what is packed, the pattern, its transpose and the values."""
    x = jnp.ones((4, 1000))
    for seed in range(5):
        used(seed, x)
    gc.collect()
    before, programs = resident(), len(jax.devices()[0].client.live_executables())
    kept = [ref for seed in range(40) for ref in used(seed, x)]
    gc.collect()
    assert not [ref() for ref in kept if ref() is not None]
    assert len(jax.devices()[0].client.live_executables()) <= programs + 2
    assert resident() - before < 60


@pytest.mark.skipif(module("cpu")[0] is None, reason="no CPU module")
def test_recompiles_leave_memory_flat():
    """A new function each time; those that are dropped are freed with what they hold."""
    x, mask, kernel = jnp.ones((1, 8, 8, 4)), jnp.ones((1, 8, 8), bool), jnp.ones((3, 3, 4, 4))
    pruned = weight(0, 64)
    held = []

    def compiled(number: int) -> None:
        scale = np.float32(number)

        @jax.jit
        def run(x):
            y = js.masked_conv(x * scale, kernel, mask) if number % 2 else x
            return js.pruned_matmul(y.reshape(-1, 64), pruned)

        jax.block_until_ready(run(x))
        held.append(weakref.ref(run))

    def grown(first: int, last: int) -> float:
        before = resident()
        for number in range(first, last):
            compiled(number)
        gc.collect()
        return resident() - before

    grown(0, 30)
    assert grown(30, 150) < 40
    assert not [ref() for ref in held if ref() is not None]


def test_results_are_kept_by_key_and_the_oldest_go():
    asked = []

    @remember(lambda value: value % 10, most=2)
    def double(value: int) -> int:
        asked.append(value)
        return 2 * value

    assert [double(v) for v in (1, 11, 2, 1, 3, 2, 1)] == [2, 2, 4, 2, 6, 4, 2]
    assert asked == [1, 2, 3, 2, 1]
    double.cache_clear()
    assert double(11) == 22
