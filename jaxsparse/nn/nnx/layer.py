"""What the nnx layers add to the calls that they share with those of linen."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from typing import Any

import jax
from flax.nnx.nn.dtypes import promote_dtype


class ConstructorSignature:
    """A class attribute `__signature__`: that of the class's `__init__`, without `self`, which
    flax's metaclass hides from `inspect.signature`.

    A subclass has that of its own `__init__`, an instance that of its `__call__`.
    """

    def __get__(self, instance: object, owner: type) -> inspect.Signature:
        if instance is not None:
            raise AttributeError("__signature__")
        _, *parameters = inspect.signature(owner.__init__).parameters.values()
        return inspect.Signature(parameters)


class Layer:
    """Shows the constructor's signature, and hands out the parameters."""

    __signature__ = ConstructorSignature()

    def _dense(self: Any, inputs: jax.Array) -> jax.Array:
        """flax's own call."""
        return super().__call__(inputs)  # pyright: ignore

    def _parameters(self: Any, inputs: jax.Array) -> tuple[jax.Array, jax.Array | None]:
        """The kernel and the bias, whatever the inputs are."""
        del inputs
        return self.kernel[...], None if self.bias is None else self.bias[...]

    def _promoted(self: Any, *arrays: jax.Array | None) -> Sequence[Any]:
        """The arrays in one dtype, the layer's."""
        promote = getattr(self, "promote_dtype", promote_dtype)
        return promote(arrays, dtype=self.dtype)
