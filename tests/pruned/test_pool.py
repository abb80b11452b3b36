"""Work sharing on the CPU: results do not depend on how many threads take part, who calls, or when
a worker wakes up.
"""

import dataclasses
import functools
import os
import subprocess
import sys
import threading

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.core.geometry import Geometry
from jaxsparse.pruned import strips
from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.plan import Tuned

_DIGESTS = """
import hashlib, os
import jax, jax.numpy as jnp, numpy as np
import jaxsparse as js

rng = np.random.default_rng(0)
kernel = np.where(rng.random((3, 3, 40, 50)) < 0.2, rng.standard_normal((3, 3, 40, 50)), 0)
conv = js.pruned.inspect(kernel.astype(np.float32), kind="conv")
weight = js.pruned.inspect(np.ascontiguousarray(kernel[0].reshape(120, 50), np.float32))
image = jnp.asarray(rng.standard_normal((2, 20, 20, 40)).astype(np.float32))
rows = jnp.asarray(rng.standard_normal((700, 120)).astype(np.float32))
mask = jnp.asarray(rng.random((2, 20, 20)) < 0.4)
dense = jnp.asarray(kernel.astype(np.float32))

def digest(y):
    return hashlib.sha256(np.asarray(y).tobytes()).hexdigest()[:16]

with js.config(variant="strips"):
    convolve, multiply = jax.jit(js.pruned_conv), jax.jit(js.pruned_matmul)
    for _ in range(3):
        print(digest(convolve(image, conv)), digest(multiply(rows, weight)))
print(digest(jax.jit(js.masked_conv)(image, dense, mask)))
names = (open(f"/proc/self/task/{t}/comm").read() for t in os.listdir("/proc/self/task"))
print("threads", sum("XLAEigen" in name for name in names))
"""


@functools.cache
def _run(threads):
    env = {**os.environ, "NPROC": str(threads), "JAX_PLATFORMS": "cpu", "XLA_FLAGS": ""}
    done = subprocess.run(
        [sys.executable, "-c", _DIGESTS], env=env, capture_output=True, text=True, timeout=300
    )
    assert done.returncode == 0, done.stderr
    *digests, count = done.stdout.splitlines()
    return digests, int(count.split()[1])


@pytest.mark.skipif(not os.path.isdir("/proc/self/task"), reason="threads are counted in /proc")
@pytest.mark.parametrize("threads", [2, 5])
def test_the_number_of_threads_changes_no_bit(threads):
    alone, count = _run(1)
    assert count == 1
    shared, count = _run(threads)
    assert count == threads
    assert shared == alone
    assert len(set(shared[:3])) == 1


def _small_items(rng, parts=4):
    """A plan of several tiny items, its input, and what dense XLA gives."""
    kernel = np.where(rng.random((3, 3, 8, 64)) < 0.2, rng.standard_normal((3, 3, 8, 64)), 0)
    pruned = js.pruned.inspect(kernel.astype(np.float32), kind="conv")
    x = rng.standard_normal((1, 6, 6, 8), np.float32)
    geo = Geometry((1, 1), ((1, 1), (1, 1)), (1, 1), (1, 1), 1)
    call = Problem(pruned.pattern, "cpu", x.shape, "float32", "float32", "default", geo)
    chosen = (2, 6, 5, 0, 8, parts, 1)
    strips.pack(call, chosen)
    key = (call.platform, call.x_shape, call.dtype, call.geometry, call.channels_first)
    tuned = Tuned(*key, "strips", chosen, 0.0, call.precision)
    return dataclasses.replace(pruned, plan=dataclasses.replace(pruned.plan, tuned=(tuned,))), x


def test_a_worker_that_comes_late_touches_nothing(rng):
    """Calls so short that most workers wake up when all is done, and the result's memory serves
    the next call.
    """
    pruned, x = _small_items(rng)
    convolve = jax.jit(lambda x: js.pruned_conv(x, pruned, padding=1))
    xs = [jnp.asarray(x * k) for k in (1, 2, 3)]
    wants = [np.asarray(convolve(x)) for x in xs]
    for i in range(3000):
        np.testing.assert_array_equal(convolve(xs[i % 3]), wants[i % 3])


def test_two_threads_call_at_once(rng):
    pruned, x = _small_items(rng)
    convolve = jax.jit(lambda x: js.pruned_conv(x, pruned, padding=1))
    xs = [jnp.asarray(x), jnp.asarray(2 * x)]
    wants = [np.asarray(convolve(x)) for x in xs]
    wrong = []

    def work(which):
        for _ in range(1000):
            if not np.array_equal(convolve(xs[which]), wants[which]):
                wrong.append(which)

    threads = [threading.Thread(target=work, args=(i,), daemon=True) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(120)
    assert not any(thread.is_alive() for thread in threads)
    assert not wrong


def test_calls_from_inside_the_pool(rng):
    """XLA runs independent calls of one program on the pool whose threads they share."""
    pruned, x = _small_items(rng)
    convolve = functools.partial(js.pruned_conv, pruned=pruned, padding=1)
    xs = [jnp.asarray(x * k) for k in range(1, 25)]
    wants = [np.asarray(jax.jit(convolve)(x)) for x in xs]
    together = jax.jit(lambda xs: [convolve(x) for x in xs])
    for _ in range(100):
        for got, want in zip(together(xs), wants, strict=True):
            np.testing.assert_array_equal(got, want)
