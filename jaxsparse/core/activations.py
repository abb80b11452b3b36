"""The activations that the kernels fuse, in jnp. gelu is the tanh form."""

from collections.abc import Callable
from typing import Any

import jax

from jaxsparse.core.contract import Activation

ACTIVATIONS: dict[str | None, Callable[..., Any]] = {
    None: lambda x: x,
    "relu": jax.nn.relu,
    "relu6": jax.nn.relu6,
    "silu": jax.nn.silu,
    "gelu": jax.nn.gelu,
}

#: The number that the handlers know each by.
CODES = {name: int(Activation[(name or "none").upper()]) for name in ACTIVATIONS}
