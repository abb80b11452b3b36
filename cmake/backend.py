"""The build backend: scikit-build-core, plus the CUDA compiler from PyPI where it is asked for and
absent.

`JAXSPARSE_CUDA=ON` on a machine without nvcc adds NVIDIA's compiler wheels to the build
environment, so a GPU machine needs a driver, Python and g++, nothing else.
"""

import os

from find_toolkit import machine_toolkit
from scikit_build_core.build import (
    build_editable,
    build_sdist,
    build_wheel,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)
from scikit_build_core.build import get_requires_for_build_editable as _editable_requires
from scikit_build_core.build import get_requires_for_build_wheel as _wheel_requires

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

TOOLKIT = ["nvidia-cuda-nvcc", "nvidia-cuda-crt", "nvidia-cuda-runtime", "nvidia-cuda-cccl"]
TOOLKIT = [f"{name}==13.0.*" for name in [*TOOLKIT, "nvidia-nvvm"]]


def toolkit_requires() -> list[str]:
    """The compiler's wheels, when CUDA is demanded and no toolkit is there."""
    demanded = os.environ.get("JAXSPARSE_CUDA", "AUTO").upper() == "ON"
    return TOOLKIT if demanded and machine_toolkit() is None else []


def get_requires_for_build_wheel(config_settings=None):
    return [*_wheel_requires(config_settings), *toolkit_requires()]


def get_requires_for_build_editable(config_settings=None):
    return [*_editable_requires(config_settings), *toolkit_requires()]
