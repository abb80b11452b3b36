"""Links the stand-in: `python build.py <folder>` makes `<folder>/_cuda.so` from the handlers and
kernels that a build of the CUDA module left under `build/`, with `driver/` in place of NVIDIA's
runtime.
"""

import concurrent.futures
import re
import subprocess
import sys
import sysconfig
from pathlib import Path

import jax

ROOT = Path(__file__).parents[3]
DRIVER = Path(__file__).with_name("driver")
FLAGS = ("-std=c++17", "-O1", "-g", "-Wall", "-Wextra", "-Werror", "-fPIC", "-fvisibility=hidden")


def built(root: Path) -> Path:
    """The folder of the module's build that this Python can load.

    Raises:
        SystemExit: if there is none; the message says what to run.
    """
    minor = sys.version_info.minor
    tag = f"cp3{minor}-cp3{minor}" if minor < 12 else "cp312-abi3"
    platform = sysconfig.get_platform().replace("-", "_")
    folder = root / f"build/{tag}-{platform}"
    if not (folder / "CMakeFiles/_cuda.dir").is_dir():
        sys.exit(
            f"{folder.relative_to(root)} holds no CUDA module, which the stand-in is linked from: "
            "run `make wheel`, or `make test JAXSPARSE_CUDA=ON` with this Python, then this again"
        )
    return folder


def headers_of(folder: Path) -> list[str]:
    """The folders of the CUDA headers that the module was built with."""
    (file,) = folder.glob("CMakeFiles/*/CMakeCUDACompiler.cmake")
    found = re.search(r'CMAKE_CUDA_TOOLKIT_INCLUDE_DIRECTORIES "(.*)"', file.read_text())
    assert found, file
    return found[1].split(";")


def kernels_of(folder: Path) -> Path:
    """The static library of the kernels, as the module's link names it."""
    found = re.search(r"(\S*libjaxsparse_kernels\.a)", (folder / "build.ninja").read_text())
    assert found, f"{folder}/build.ninja"
    return folder / found[1]  # which may be an absolute path


def compile_driver(folder: Path, out: Path) -> list[Path]:
    """The objects of `driver/`."""
    headers = [*headers_of(folder), jax.ffi.include_dir()]
    includes = [part for header in headers for part in ("-isystem", header)]
    sources = sorted(DRIVER.glob("*.cc"))

    def compiled(source: Path) -> Path:
        made = out / f"{source.stem}.o"
        command = ["g++", *FLAGS, *includes, "-c", str(source), "-o", str(made)]
        subprocess.run(command, check=True, timeout=300)
        return made

    with concurrent.futures.ThreadPoolExecutor(2) as pool:
        return list(pool.map(compiled, sources))


def link(folder: Path, out: Path) -> Path:
    """Link the library.

    Raises:
        SystemExit: if `driver/` lacks a function of the runtime; the message names it.
    """
    made = out / "_cuda.so"
    objects = [
        *sorted((folder / "CMakeFiles/_cuda.dir").rglob("*.o")),
        *compile_driver(folder, out),
    ]
    objects += [kernels_of(folder), *folder.glob("libnanobind-static*.a")]
    command = ["g++", "-shared", "-o", made, *objects, "-lpthread"]
    subprocess.run([str(part) for part in command], check=True, timeout=300)
    undefined = subprocess.check_output(["nm", "-D", "--undefined-only", str(made)], text=True)
    missing = sorted(set(re.findall(r"\b(?:__cuda|cuda|cu)[A-Z]\w*", undefined)))
    if missing:
        sys.exit(f"tests/ffi/stand_in/driver lacks functions of the CUDA runtime: {missing}")
    return made


def main() -> None:
    """Command line."""
    out = Path(sys.argv[1])
    out.mkdir(parents=True, exist_ok=True)
    print(link(built(ROOT), out))


if __name__ == "__main__":
    main()
