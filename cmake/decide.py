"""Whether the CUDA module is built, with which compiler and for which GPUs: `JAXSPARSE_CUDA` and
`JAXSPARSE_CUDA_ARCHITECTURES` beside what the machine has. CMake and the build backend ask here.

| `JAXSPARSE_CUDA` | a GPU | no GPU |
|---|---|---|
| AUTO (default) | kernels for that GPU | CPU module alone |
| ON | the release set, or what `JAXSPARSE_CUDA_ARCHITECTURES` says | the same |
| OFF | CPU module alone | CPU module alone |

A compiler that is missing or too old is taken from PyPI where kernels are wanted.
"""

import json
import os
from typing import NamedTuple

import architectures
import machine

#: NVIDIA's compiler on PyPI: a driver, Python and g++ are all that a GPU machine needs beside it.
PYPI_COMPILER = tuple(
    f"nvidia-{name}==13.0.*"
    for name in ("cuda-nvcc", "cuda-crt", "cuda-runtime", "cuda-cccl", "nvvm")
)
_OLDEST_NVCC = "{}.{}".format(*machine.OLDEST_NVCC)


class Decision(NamedTuple):
    """What is built, and the sentence that says why. `error` instead ends the build."""

    cuda: bool
    why: str
    toolkit: machine.Toolkit | None = None  # None with `cuda`: the compiler has to come from PyPI
    architectures: str = ""
    error: str = ""


def decide() -> Decision:
    """The decision for this machine and environment."""
    wish = os.environ.get("JAXSPARSE_CUDA", "AUTO").upper()
    listed = os.environ.get("JAXSPARSE_CUDA_ARCHITECTURES", "")
    if wish not in ("AUTO", "ON", "OFF"):
        return _refused(f"JAXSPARSE_CUDA is {wish!r}; it takes AUTO, ON or OFF")
    if wish == "OFF":
        return Decision(False, "JAXSPARSE_CUDA=OFF")
    gpus = machine.gpus()
    served = [gpu for gpu in gpus if gpu >= machine.OLDEST_GPU]
    if wish == "AUTO" and not served:
        return Decision(False, _why_no_kernels(gpus))
    try:
        entries = architectures.parse(listed or _default(wish), served)
    except ValueError as error:
        return _refused(str(error))
    toolkit, note = _compiler()
    return Decision(True, note, toolkit, ";".join(map(str, entries)))


def _default(wish: str) -> str:
    return "native" if wish == "AUTO" else architectures.RELEASE


def _why_no_kernels(gpus: list[tuple[int, int]]) -> str:
    if gpus:
        found = ", ".join(sorted({f"{major}.{minor}" for major, minor in gpus}))
        return f"the GPU here has compute capability {found}, and jaxsparse's kernels need 8.0"
    return "no GPU here; JAXSPARSE_CUDA=ON builds the CUDA kernels all the same"


def _compiler() -> tuple[machine.Toolkit | None, str]:
    """The newest compiler that will do, and a sentence about it."""
    found = [t for t in (machine.machine_toolkit(), machine.wheel_toolkit()) if t is not None]
    for toolkit in found:
        if toolkit.version >= machine.OLDEST_NVCC:
            return toolkit, "nvcc {}.{} of ".format(*toolkit.version) + (
                "this machine" if toolkit.owner == "machine" else "PyPI"
            )
    if found:
        version = "{}.{}".format(*found[0].version)
        return None, f"nvcc {version} is too old ({_OLDEST_NVCC} is needed): PyPI's instead"
    return None, "no nvcc on this machine: PyPI's instead"


def _refused(why: str) -> Decision:
    return Decision(False, why, error=why)


def main() -> None:
    """Print the decision as JSON, for CMake."""
    decision = decide()
    toolkit = decision.toolkit
    if decision.cuda and toolkit is None:
        decision = _refused(
            f"the CUDA module needs nvcc {_OLDEST_NVCC} or newer: set CUDA_HOME, put nvcc on PATH, "
            f"or pip install {' '.join(PYPI_COMPILER)}; JAXSPARSE_CUDA=OFF builds without it"
        )
    print(
        json.dumps(
            {
                "cuda": "ON" if decision.cuda else "OFF",
                "why": decision.why,
                "architectures": decision.architectures,
                "root": str(toolkit.root) if toolkit else "",
                "owner": toolkit.owner if toolkit else "",
                "error": decision.error,
            }
        )
    )


if __name__ == "__main__":
    main()
