"""What is known of this machine's devices. Where there is no GPU, a function is lowered for another
machine: then the answers are a Hopper's.
"""

import os
from typing import Any

import jax

#: What costs were measured on, and estimates of waves are made for: an H200's multiprocessors, and
#: its cycles a microsecond.
MULTIPROCESSORS, CLOCK = 132, 1755.0
#: The most workers that a CPU kernel takes.
MOST_WORKERS = 64

#: What a kernel asks for at most: what a block may take on compute capability 9.0 and 10.0.
MOST_SHARED_BYTES = 227 << 10
# By compute capability, where JAX does not say: of a block.
_SHARED_KIB = {"7.0": 96, "7.5": 64, "8.0": 163, "8.6": 99, "8.7": 163, "8.9": 99, "12.0": 99}


def device_kind(platform: str) -> str:
    """The kind of this machine's first device of `platform` ("cpu" for every CPU), or "" where
    there is none.
    """
    if platform == "cpu":
        return "cpu"
    try:
        return jax.devices(platform)[0].device_kind
    except RuntimeError:
        return ""


def home_platform() -> str:
    """ "cpu" or "cuda": where JAX runs by default here."""
    return "cpu" if jax.default_backend() == "cpu" else "cuda"


def cores() -> int:
    """The CPU's cores that this process may run on."""
    own = getattr(os, "sched_getaffinity", None)  # where the process may not run everywhere
    return len(own(0)) if own else os.cpu_count() or 1


def workers() -> int:
    """Workers that the scratch has room for; the handler takes as many as its pool has."""
    return min(cores(), MOST_WORKERS)


def is_hopper() -> bool:
    """Whether JAX's CUDA device is a Hopper; where there is none, the lowering is for one."""
    try:
        return jax.devices("cuda")[0].compute_capability == "9.0"
    except RuntimeError:
        return True


def clusters() -> bool:
    """Whether this machine's GPU has clusters of blocks."""
    try:
        return float(jax.devices("cuda")[0].compute_capability) >= 9.0
    except RuntimeError:
        return True


def shared_bytes() -> int:
    """Shared memory that a block may take: the least of this machine's GPUs."""
    try:
        found = jax.devices("cuda")
    except RuntimeError:
        return MOST_SHARED_BYTES
    return min(MOST_SHARED_BYTES, *map(_shared_bytes, found))


def _shared_bytes(device: Any) -> int:
    told = getattr(device, "shared_memory_per_block_optin", None)
    if isinstance(told, int) and told > 0:
        return told
    return _SHARED_KIB.get(str(device.compute_capability), MOST_SHARED_BYTES >> 10) << 10


def gpu_facts() -> tuple[tuple[Any, ...], ...]:
    """What this module and the tuning tables ask of each of this machine's GPUs: where these are
    equal, so are the answers.
    """
    try:
        found = jax.devices("cuda")
    except RuntimeError:
        return ()
    names = ("device_kind", "compute_capability", "core_count", "shared_memory_per_block_optin")
    return tuple(tuple(getattr(device, name, None) for name in names) for device in found)
