"""Print the root of a CUDA toolkit and whose it is, as a CMake list: `<root>;machine` of the
machine's own, else `<root>;wheels` of NVIDIA's in this Python, else nothing.
"""

import importlib.util
import os
import shutil
from pathlib import Path


def machine_toolkit() -> Path | None:
    """The root of the toolkit installed on this machine (CUDA_HOME, /usr/local/cuda, PATH), or
    None.
    """
    on_path = shutil.which("nvcc")
    roots = [os.environ.get("CUDA_HOME"), os.environ.get("CUDA_PATH"), "/usr/local/cuda"]
    roots += [str(Path(on_path).resolve().parent.parent)] if on_path else []
    for root in roots:
        if root and is_toolkit(Path(root)):
            return Path(root).resolve()
    return None


def is_toolkit(root: Path) -> bool:
    """Whether a compiler and the runtime's headers lie under `root`."""
    return (root / "bin" / "nvcc").exists() and (root / "include" / "cuda_runtime.h").exists()


def wheel_toolkit() -> Path | None:
    """The root that NVIDIA's PyPI wheels made in this Python, or None."""
    spec = importlib.util.find_spec("nvidia")
    places = list(spec.submodule_search_locations or []) if spec else []
    roots = (
        nvcc.parent.parent for place in places for nvcc in sorted(Path(place).glob("*/bin/nvcc"))
    )
    return next(filter(is_toolkit, roots), None)


if __name__ == "__main__":
    if machine := machine_toolkit():
        print(machine, "machine", sep=";")
    elif wheels := wheel_toolkit():
        print(wheels, "wheels", sep=";")
