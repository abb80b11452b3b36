"""What a process goes through: threads, a fork, an interrupt, no home, a full disk, two writers."""

import concurrent.futures
import os
import resource
import signal
import subprocess
import sys
import threading
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.tune.cache import CostCache
from jaxsparse.tune.costs import Costs

ROOT = Path(js.__file__).parents[1]
COSTS = Costs(("a", "dense"), (0.5, 1.0), ((1.0, None), (2.0, 3.0)))


def drawn(seed):
    rng = np.random.default_rng(seed)
    return rng.standard_normal((1, 9, 11, 4)).astype(np.float32), rng.random((1, 9, 11)) < 0.3


KERNEL = np.ones((3, 3, 4, 5), np.float32)


def convolution(x, mask):
    return js.masked_conv(x, KERNEL, js.tile_index(mask, (2, 2), ordered=True))


def run(code, **env):
    given = {"PATH": os.environ["PATH"], "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"} | env
    command = [sys.executable, "-W", "ignore", "-c", code]
    return subprocess.run(command, env=given, capture_output=True, text=True, timeout=300)


@pytest.mark.parametrize("jits", [1, 8])
def test_eight_threads(jits):
    """On one jitted function, and each with its own; the results are those of one thread."""
    runs = [jax.jit(lambda *given: convolution(*given)) for _ in range(jits)]
    want = [np.asarray(convolution(*drawn(seed))) for seed in range(8)]
    begin = threading.Barrier(8)

    def work(seed):
        begin.wait()
        return [np.asarray(runs[seed % jits](*drawn(seed))) for _ in range(20)]

    with concurrent.futures.ThreadPoolExecutor(8) as pool:
        for seed, results in enumerate(pool.map(work, range(8))):
            for got in results:
                np.testing.assert_array_equal(got, want[seed])


USE = """
import os
import jax.numpy as jnp
import jaxsparse as js
x, k, mask = jnp.ones((1, 8, 8, 4)), jnp.ones((3, 3, 4, 4)), jnp.ones((1, 8, 8), bool)
first = js.masked_conv(x, k, mask).sum()
"""


def test_without_a_home():
    done = run(USE + "print(float(first), js.tune.__name__)")
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == ["7744.0", "tune"]


def test_a_fork_after_use():
    """The child, which has none of the threads, ends by itself; the parent goes on."""
    code = USE + (
        "child = os.fork()\n"
        "if not child: os._exit(3)\n"
        "_, status = os.waitpid(child, 0)\n"
        "print(os.waitstatus_to_exitcode(status), float(js.masked_conv(x, k, mask).sum()))\n"
    )
    done = run(code)
    assert done.stdout.split() == ["3", "7744.0"], done.stderr


def test_an_interrupt_while_an_op_is_traced():
    """A policy is called in the midst of it: afterwards the same call runs."""
    pressed = []

    def policy(problem, options):
        if not pressed:
            pressed.append(True)
            signal.raise_signal(signal.SIGINT)
        return None

    x, mask = drawn(0)
    step = jax.jit(lambda x, mask: js.masked_conv(x, KERNEL[..., :3], mask))
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # a background job has none
    try:
        with js.config(policy=policy):
            with pytest.raises(KeyboardInterrupt):
                step(x, mask)
            got = step(x, mask)
    finally:
        signal.signal(signal.SIGINT, before)
    want = jax.jit(lambda x, m: js.masked_conv(x, KERNEL[..., :3], m))(x, mask)
    np.testing.assert_allclose(got, want, rtol=1e-5, atol=1e-5)


@pytest.fixture
def full():
    """No file may grow past some bytes; the signal of it is not the process's end."""
    before, handler = resource.getrlimit(resource.RLIMIT_FSIZE), signal.getsignal(signal.SIGXFSZ)
    signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_FSIZE, before)
    signal.signal(signal.SIGXFSZ, handler)


def test_a_full_disk(tmp_path, full):
    """Measurements are not kept, with a warning; a weight's file is not there, in part either."""
    cache = CostCache(tmp_path)
    with pytest.warns(RuntimeWarning, match="measurements are not kept"):
        cache.put({"op": "x"}, COSTS)
    assert cache.get({"op": "x"}) is None
    with pytest.raises(OSError, match="large"):
        js.pruned.inspect(np.eye(9, dtype=np.float32)).save(tmp_path / "w.plan")
    assert not list(tmp_path.iterdir())


def test_two_processes_with_one_cache(tmp_path):
    """Both write and read the same entries at once: every read is whole or nothing."""
    given = COSTS.variants, COSTS.density, COSTS.seconds
    code = (
        "from pathlib import Path\n"
        "from jaxsparse.tune.cache import CostCache\n"
        "from jaxsparse.tune.costs import Costs\n"
        f"cache, costs = CostCache(Path({str(tmp_path)!r})), Costs(*{given!r})\n"
        "for i in range(300):\n"
        "    cache.put({'op': i % 5}, costs)\n"
        "    found = cache.get({'op': (i + 1) % 5})\n"
        "    assert found in (None, costs), found\n"
        "assert cache.get({'op': 0}) == costs\n"
    )
    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        for done in pool.map(run, [code, code]):
            assert done.returncode == 0, done.stderr
    assert len(list(tmp_path.iterdir())) == 5
