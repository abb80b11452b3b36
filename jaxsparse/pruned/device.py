"""What the executors on CUDA ask of this machine's GPU. Where there is none, a function is lowered
for another machine: then the answers are a Hopper's.
"""

from typing import Any

import jax

#: What a kernel asks for at most: what a block may take on compute capability 9.0 and 10.0.
MOST_SHARED_BYTES = 227 << 10
# By compute capability, where JAX does not say: of a block.
_SHARED_KIB = {"7.0": 96, "7.5": 64, "8.0": 163, "8.6": 99, "8.7": 163, "8.9": 99, "12.0": 99}


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
