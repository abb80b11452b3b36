"""A pretended GPU: what is traced here is lowered for it, and nothing can run on it."""

import contextlib
import dataclasses
from collections.abc import Iterator
from typing import Any

import jax

from jaxsparse.ffi import platform


@dataclasses.dataclass(frozen=True)
class Gpu:
    """What the package asks of JAX's device."""

    device_kind: str
    compute_capability: str
    core_count: int
    shared_memory_per_block_optin: int
    platform: str = "gpu"


#: The stand-in's device -> what JAX says of it; numbers as in `driver/devices.h`.
GPUS = {
    "sm_90": Gpu("NVIDIA H100 80GB HBM3", "9.0", 132, 227 << 10),
    "sm_80": Gpu("NVIDIA A100-SXM4-80GB", "8.0", 108, 163 << 10),
    "sm_86": Gpu("NVIDIA A40", "8.6", 84, 99 << 10),
    "sm_89": Gpu("NVIDIA L40S", "8.9", 142, 99 << 10),
    "sm_100": Gpu("NVIDIA B200", "10.0", 148, 227 << 10),
    "sm_120": Gpu("NVIDIA GeForce RTX 5090", "12.0", 170, 99 << 10),
}


@contextlib.contextmanager
def pretend(name: str) -> Iterator[None]:
    """JAX's CUDA device is `GPUS[name]`. Use one name in a process: JAX caches what is traced."""
    real = jax.devices

    def devices(backend: Any = None) -> Any:
        return [GPUS[name]] if backend in ("cuda", "gpu") else real(backend)

    jax.devices = devices  # pyright: ignore
    platform._cuda_capabilities.cache_clear()  # pyright: ignore
    try:
        yield
    finally:
        jax.devices = real
        platform._cuda_capabilities.cache_clear()  # pyright: ignore
