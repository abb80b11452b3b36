"""What this machine has for CUDA: the compiler, its version, the GPUs. Standard library only; asks
the driver itself, so neither nvidia-smi nor JAX has to be there.
"""

import ctypes
import importlib.util
import os
import re
import shutil
import subprocess
from pathlib import Path
from typing import NamedTuple

OLDEST_NVCC = (12, 8)  # the first that compiles for sm_100 and sm_120
OLDEST_GPU = (8, 0)

_CAPABILITY_MAJOR, _CAPABILITY_MINOR = 75, 76  # CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_*


class Toolkit(NamedTuple):
    """A CUDA compiler: its root, whose it is ("machine" or "wheels") and its version."""

    root: Path
    owner: str
    version: tuple[int, int]


def is_toolkit(root: Path) -> bool:
    """Whether a compiler and the runtime's headers lie under `root`."""
    return (root / "bin" / "nvcc").exists() and (root / "include" / "cuda_runtime.h").exists()


def nvcc_version(root: Path) -> tuple[int, int]:
    """The release of the compiler under `root`; (0, 0) where it does not run."""
    try:
        done = subprocess.run(
            [root / "bin" / "nvcc", "--version"], capture_output=True, text=True, timeout=60
        )
    except OSError:
        return 0, 0
    found = re.search(r"release (\d+)\.(\d+)", done.stdout)
    return (int(found[1]), int(found[2])) if found else (0, 0)


def machine_roots() -> list[Path]:
    """Where this machine's own toolkit may lie, in order: CUDA_HOME, CUDA_PATH, nvcc on PATH,
    /usr/local/cuda.
    """
    on_path = shutil.which("nvcc")
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH")]
    roots += [str(Path(on_path).resolve().parent.parent)] if on_path else []
    return [Path(root) for root in [*roots, "/usr/local/cuda"] if root]


def machine_toolkit() -> Toolkit | None:
    """The first toolkit on this machine, of any version, or None."""
    root = next(filter(is_toolkit, machine_roots()), None)
    return Toolkit(root.resolve(), "machine", nvcc_version(root)) if root else None


def wheel_toolkit() -> Toolkit | None:
    """The toolkit of NVIDIA's PyPI wheels in this Python, or None."""
    spec = importlib.util.find_spec("nvidia")
    places = list(spec.submodule_search_locations or []) if spec else []
    roots = (
        nvcc.parent.parent for place in places for nvcc in sorted(Path(place).glob("*/bin/nvcc"))
    )
    root = next(filter(is_toolkit, roots), None)
    return Toolkit(root, "wheels", nvcc_version(root)) if root else None


def gpus() -> list[tuple[int, int]]:
    """The compute capability of each GPU that the driver shows; empty without a driver."""
    try:
        driver = ctypes.CDLL("libcuda.so.1")
    except OSError:
        return []
    count = ctypes.c_int()
    if driver.cuInit(0) != 0 or driver.cuDeviceGetCount(ctypes.byref(count)) != 0:
        return []
    return [_capability(driver, device) for device in range(count.value)]


def _capability(driver: ctypes.CDLL, device: int) -> tuple[int, int]:
    found = []
    for attribute in (_CAPABILITY_MAJOR, _CAPABILITY_MINOR):
        value = ctypes.c_int()
        if driver.cuDeviceGetAttribute(ctypes.byref(value), attribute, device) != 0:
            return 0, 0
        found.append(value.value)
    return found[0], found[1]
