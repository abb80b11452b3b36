"""Four fake CPU devices, strict dtype promotion, and the marks: what needs a GPU runs where JAX
sees one.
"""

import gc
import importlib.metadata
import os
import zlib

# XLA's emitters of fusions take two fifths of its time to compile for a CPU. Later jaxlibs have
# neither the older emitters nor the flag, and XLA stops at a flag that it does not know.
os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "")
    + " --xla_force_host_platform_device_count=4"
    + " --xla_cpu_use_fusion_emitters=false"
    * importlib.metadata.version("jaxlib").startswith("0.10.")
)
os.environ.setdefault("XLA_PYTHON_CLIENT_PREALLOCATE", "false")

import jax
import numpy as np
import pytest
from hypothesis import HealthCheck, settings

jax.config.update("jax_numpy_dtype_promotion", "strict")

settings.register_profile(
    "jaxsparse",
    deadline=None,
    derandomize=True,
    max_examples=25,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
settings.load_profile("jaxsparse")

ON_GPU = jax.default_backend() == "gpu"

# What is tested is compiled already, but for the references: LLVM's expensive passes over these and
# over the tests' own arithmetic cost a third of the time. JAX_DISABLE_MOST_OPTIMIZATIONS=0 keeps
# them.
if not ON_GPU and "JAX_DISABLE_MOST_OPTIMIZATIONS" not in os.environ:
    jax.config.update("jax_disable_most_optimizations", True)


NEED_A_GPU = pytest.StashKey[int]()


def pytest_addoption(parser):
    parser.addoption("--share", type=float, default=1.0, help="of the tests, drawn with the seed")
    parser.addoption("--share-seed", type=int, default=0)


def pytest_collection_modifyitems(config, items):
    """Where JAX sees no GPU, the tests for one are left out here, and counted: thousands of skips
    would pass from xdist's workers to its controller one by one.
    """
    share, seed = config.getoption("share"), config.getoption("share_seed")

    def drawn(item):
        return zlib.crc32(f"{seed} {item.nodeid}".encode()) < share * 2**32

    config.hook.pytest_deselected(items=[item for item in items if not drawn(item)])
    items[:] = filter(drawn, items)
    config.stash[NEED_A_GPU] = 0
    if ON_GPU:
        return
    apart = [item for item in items if "gpu" in item.keywords]
    config.stash[NEED_A_GPU] = len(apart)
    items[:] = [item for item in items if "gpu" not in item.keywords]
    config.hook.pytest_deselected(items=apart)


def pytest_collection_finish(session):
    """What is there by now stays: Python's garbage collector need not walk it again, nor start at
    every 700th object of a trace, each time with XLA's own collector.
    """
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 10, 10)


def pytest_sessionfinish(session):
    if hasattr(session.config, "workeroutput"):
        session.config.workeroutput["need_a_gpu"] = session.config.stash.get(NEED_A_GPU, 0)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node, error):
    """Each of xdist's workers has collected the same tests."""
    node.config.stash[NEED_A_GPU] = getattr(node, "workeroutput", {}).get("need_a_gpu", 0)


def pytest_terminal_summary(terminalreporter, config):
    if count := config.stash.get(NEED_A_GPU, 0):
        terminalreporter.write_line(f"{count} tests need a CUDA device; JAX sees none")


@pytest.fixture(
    params=["reference", "cpu", pytest.param("cuda", marks=pytest.mark.gpu)], scope="module"
)
def implementation(request):
    """Each implementation; a GPU machine runs the reference and CUDA, a CPU machine the reference
    and the C++ kernels.
    """
    if request.param == "cpu" and ON_GPU:
        pytest.skip("lowered for the GPU here")
    return request.param


@pytest.fixture
def rng():
    return np.random.default_rng(0)
