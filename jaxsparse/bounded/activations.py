"""`Activations`: values with the recorder that says which of them need not be read."""

from __future__ import annotations

import dataclasses
import functools
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import numpy.typing as npt
from jax.typing import ArrayLike
from jaxtyping import Array, Float, Float32
from numpy.typing import NDArray

from jaxsparse.core.checks import is_traced
from jaxsparse.core.variables import takes_variables
from jaxsparse.recorder import MIXED, Recorder


@functools.partial(
    jax.tree_util.register_dataclass, data_fields=("values", "recorder"), meta_fields=()
)
@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Activations:
    """Values [batch, n] that flow through pure functions together with their recorder: a pytree.

    `materialize()`, or numpy.asarray of the whole, gives the values to read.

    Attributes:
        values: float32[batch, n]; undefined (whatever the memory held, a NaN, too) where the
            recorder's code is set: call `materialize()` to read them. Under `jax_debug_nans` they
            are written, too, in what is traced while it is on.
        recorder: a `Recorder` of the same rows.
    """

    values: Float[Array, "batch n"]
    recorder: Recorder

    @classmethod
    @takes_variables
    def plain(cls, values: Float32[ArrayLike, "batch n"]) -> Activations:
        """Values [batch, n] of which nothing is known.

        Raises:
            TypeError: when `values` is not a float32 array.
            ValueError: when it has not two axes.
        """
        values = check_values(values)
        codes = jnp.full((values.shape[0], 1 if values.shape[1] else 0), MIXED, jnp.uint8)
        return cls(values, Recorder(codes, max(values.shape[1], 1), 0.0))

    def materialize(self) -> Float[Array, "batch n"]:
        """The values, float32[batch, n], with what the recorder stands for filled in."""
        return self.recorder.fill(self.values)

    def filled(self) -> Activations:
        """The same with `materialize()` as the values: none of them is undefined."""
        return Activations(self.materialize(), self.recorder)

    @property
    def shape(self) -> tuple[int, ...]:
        """(batch, n), as of `materialize()`."""
        return self.values.shape

    @property
    def dtype(self) -> np.dtype[np.float32]:
        """float32, as of `materialize()`."""
        return self.values.dtype

    def __array__(self, dtype: npt.DTypeLike | None = None, copy: bool | None = None) -> np.ndarray:
        """`materialize()` for numpy; always a copy."""
        if copy is False:
            raise ValueError("Activations as an array are a copy, with codes filled in")
        return np.array(self.materialize(), dtype)

    def __repr__(self) -> str:
        if not hasattr(self.values, "shape"):  # a pytree of something else than arrays
            return f"Activations({self.values!r}, {self.recorder!r})"
        shape = f"{self.values.dtype}{list(self.values.shape)}"
        each = f"a code for {self.recorder.segment} values"
        return f"Activations({shape}, {each}: .materialize() reads them)"


def check_values(values: Any) -> jax.Array:
    """`values` as a jax array.

    Raises:
        TypeError: when it is not a float32 array.
        ValueError: when it has not two axes.
    """
    if not hasattr(values, "dtype") or not hasattr(values, "shape"):
        raise TypeError(f"acts must be an array or Activations, not {type(values).__name__}")
    if len(values.shape) != 2:
        raise ValueError(f"acts has shape {tuple(values.shape)}; it needs [batch, n]")
    if values.dtype != np.float32:
        raise TypeError(
            f"acts has dtype {values.dtype}; it takes float32: acts.astype(jnp.float32)"
        )
    return jnp.asarray(values)


@takes_variables
def categories(acts: Activations | Float[ArrayLike, "batch n"]) -> NDArray[np.int32]:
    """The numbers of the rows that are not all zero, from 0: the challenge's answer.

    Args:
        acts: `Activations`, or an array [batch, n]; concrete (the answer's length depends on the
            data).

    Returns:
        int32[alive], ascending. A NaN counts as not zero.

    Raises:
        ValueError: when there are not two axes.
        TypeError: when acts are traced.
    """
    if is_traced(acts):
        raise TypeError(
            "acts are traced: the answer's length depends on them; call it outside of jit"
        )
    values = acts.materialize() if isinstance(acts, Activations) else jnp.asarray(acts)
    if values.ndim != 2:
        raise ValueError(f"acts has shape {values.shape}; it needs [batch, n]")
    return np.flatnonzero(np.asarray((values != 0).any(-1))).astype(np.int32)
