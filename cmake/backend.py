"""The build backend: scikit-build-core behind checks that end in one sentence.

Where CUDA kernels are wanted and this machine has no compiler that will do, NVIDIA's compiler from
PyPI joins the build environment (cmake/decide.py), so a GPU machine needs a driver, Python and g++.
"""

import contextlib
import fcntl
import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from decide import PYPI_COMPILER, decide
from scikit_build_core import build as skbuild
from scikit_build_core.build import (
    build_sdist,
    get_requires_for_build_sdist,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

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

Settings = dict[str, Any] | None
_GIGABYTE = 10**9
_SPACE = {
    False: _GIGABYTE // 2,
    True: 2 * _GIGABYTE,
}  # objects and the wheel, without and with CUDA


def compiler_requires() -> list[str]:
    """The compiler's wheels, when kernels are wanted and this machine cannot compile them."""
    decision = decide()
    return list(PYPI_COMPILER) if decision.cuda and decision.toolkit is None else []


def get_requires_for_build_wheel(config_settings: Settings = None) -> list[str]:
    """What the build environment needs beside pyproject.toml's list."""
    _check()
    return [*skbuild.get_requires_for_build_wheel(config_settings), *compiler_requires()]


def get_requires_for_build_editable(config_settings: Settings = None) -> list[str]:
    """As for a wheel."""
    _check()
    return [*skbuild.get_requires_for_build_editable(config_settings), *compiler_requires()]


def build_wheel(directory: str, settings: Settings = None, metadata: str | None = None) -> str:
    """Build the wheel; a second build of this checkout waits for the first."""
    with _one_at_a_time():
        return skbuild.build_wheel(directory, settings, metadata)


def build_editable(directory: str, settings: Settings = None, metadata: str | None = None) -> str:
    """As `build_wheel`, installed in place."""
    with _one_at_a_time():
        return skbuild.build_editable(directory, settings, metadata)


def _check() -> None:
    """End the build before it begins where it cannot end well."""
    decision = decide()
    if decision.error:
        sys.exit(f"jaxsparse: {decision.error}")
    compiler = os.environ.get("CXX") or next(filter(shutil.which, ("c++", "g++", "clang++")), "")
    if not compiler or shutil.which(compiler.split()[0]) is None:
        sys.exit(
            f"jaxsparse: no C++ compiler ({compiler or 'c++, g++ or clang++'} is not on PATH): "
            "install one, e.g. apt-get install g++, or set CXX"
        )
    space, free = _SPACE[decision.cuda], shutil.disk_usage(".").free
    if free < space:
        sys.exit(
            f"jaxsparse: {free / _GIGABYTE:.1f} GB are free in {Path.cwd()}, and the build needs "
            f"{space / _GIGABYTE:.1f} GB"
        )


@contextlib.contextmanager
def _one_at_a_time() -> Iterator[None]:
    """Hold build/.lock: builds of one checkout share build/kernels."""
    Path("build").mkdir(exist_ok=True)
    with Path("build/.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("jaxsparse: another build of this checkout runs; waiting for it", flush=True)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
