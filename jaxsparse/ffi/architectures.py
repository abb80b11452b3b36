"""Which GPUs a build of the CUDA kernels serves."""

import re

_ENTRY = re.compile(r"(\d+)(a|f)?(-real|-virtual)?")
_HOPPER = 90


def serves(architectures: str, capability: str) -> bool:
    """Whether kernels built for `architectures` run on a GPU of this compute capability.

    Machine code runs on its own major version, from its minor version on; PTX on every later one.
    A Hopper needs `90a`: its tensor-core kernels are built for nothing else.

    Args:
        architectures: as the module says, e.g. "80-real,90a-real,100-virtual".
        capability: as JAX says, e.g. "9.0".
    """
    major, _, minor = capability.partition(".")
    wanted = 10 * int(major) + int(minor or 0)
    entries = [_ENTRY.fullmatch(word) for word in architectures.split(",")]
    return any(_runs(found, wanted) for found in entries if found is not None)


def _runs(entry: re.Match[str], wanted: int) -> bool:
    number, feature, kind = int(entry[1]), entry[2], entry[3]
    if feature or wanted == _HOPPER:
        return number == wanted and feature == "a" and kind != "-virtual"
    real = kind != "-virtual" and number // 10 == wanted // 10 and number <= wanted
    return real or (kind != "-real" and number <= wanted)


def reason_against(architectures: str, capability: str) -> str | None:
    """Why the kernels do not run on such a GPU, with what to do; None where they run."""
    if serves(architectures, capability):
        return None
    major, _, minor = capability.partition(".")
    wanted = f"{major}{minor}" + ("a" if capability == "9.0" else "")
    return (
        f"the CUDA kernels were built for {architectures}, and this GPU has compute capability "
        f"{capability}: build them with JAXSPARSE_CUDA=ON JAXSPARSE_CUDA_ARCHITECTURES={wanted}"
    )
