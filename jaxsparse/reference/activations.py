"""The activations that the kernels fuse, in jnp. gelu is the tanh form."""

from collections.abc import Callable
from typing import Any

import jax

ACTIVATIONS: dict[str | None, Callable[..., Any]] = {
    None: lambda x: x,
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
}
