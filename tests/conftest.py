"""Four fake CPU devices, strict dtype promotion, and the marks: what needs a GPU runs where JAX
sees one.
"""

import os

os.environ["XLA_FLAGS"] = (
    os.environ.get("XLA_FLAGS", "") + " --xla_force_host_platform_device_count=4"
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


def pytest_collection_modifyitems(items):
    if ON_GPU:
        return
    skip = pytest.mark.skip(reason="JAX sees no CUDA device")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


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
