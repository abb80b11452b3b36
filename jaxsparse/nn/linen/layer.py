"""What the linen layers add to the calls that they share with those of nnx."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import jax
from flax import linen
from flax.linen.dtypes import promote_dtype


class Layer:
    """Makes the shared `__call__` a compact method of each layer, and draws flax's parameters."""

    def __init_subclass__(cls, **options: Any) -> None:
        shared: Any = cls.__call__
        if not hasattr(shared, "compact"):  # not a layer's own, nor that of a layer above
            cls.__call__ = linen.compact(_method(shared))
        super().__init_subclass__(**options)

    def _dense(self: Any, inputs: jax.Array) -> jax.Array:
        """flax's own call."""
        return super().__call__(inputs)  # pyright: ignore

    def _parameters(self: Any, inputs: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        """The kernel and the bias of a `linen.Dense` or `linen.Conv` for such inputs."""
        shape = inputs.shape[-1], self.features
        if isinstance(self, linen.Conv):
            channels = inputs.shape[-1] // self.feature_group_count
            shape = *self.kernel_size, channels, self.features  # pyright: ignore
        kernel = self.param("kernel", self.kernel_init, shape, self.param_dtype)
        if not self.use_bias:
            return kernel, None
        return kernel, self.param("bias", self.bias_init, (self.features,), self.param_dtype)

    def _promoted(self: Any, *arrays: jax.Array | None) -> Sequence[Any]:
        """The arrays in one dtype, the layer's."""
        promote = getattr(self, "promote_dtype", promote_dtype)
        return promote(*arrays, dtype=self.dtype)


def _method(shared: Any) -> Any:
    """A function of its own for each layer: flax marks it."""

    @functools.wraps(shared)
    def call(self: object, *args: Any, **kwargs: Any) -> Any:
        return shared(self, *args, **kwargs)

    return call
