"""`PrunedWeight`: what inspection makes of a weight: a pytree, its only leaf the kept values."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Float

from jaxsparse.core.checks import check_array, is_traced
from jaxsparse.core.dtypes import FLOATS
from jaxsparse.core.types import Kind
from jaxsparse.core.variables import takes_variables
from jaxsparse.pruned.checks import check_dense
from jaxsparse.pruned.files import load, save
from jaxsparse.pruned.pattern import Pattern
from jaxsparse.pruned.plan import Plan, dense_index


@jax.tree_util.register_dataclass
@dataclasses.dataclass(frozen=True, eq=False)
class PrunedWeight:
    """A frozen weight, from `js.pruned.inspect`: kept values, and the plan of how to run them.

    Closed over by a jitted function it is a constant; passed to one it is an operand, whose values
    may change from call to call while the pattern stays: `jax.grad` and optimizers see one array.
    `with_values` and `from_dense` give the same plan other values, `to_dense` is the weight with
    its zeros, `astype` another dtype, `save` and `load` a file.

    Attributes:
        values: [kept], float32, bfloat16 or float16, a jax array or a numpy array that is not
            written to; row by row of the pattern (a row is an output). Leading axes, as
            `jax.tree.map(jnp.stack)` and `jax.vmap` make them, are several weights of one plan.
        plan: static and hashable.
    """

    values: jax.Array
    plan: Plan = dataclasses.field(metadata={"static": True})

    @property
    def pattern(self) -> Pattern:
        """Which weights are kept."""
        return self.plan.pattern

    @property
    def kind(self) -> Kind:
        """ "matmul" or "conv"."""
        return self.plan.kind

    @property
    def shape(self) -> tuple[int, ...]:
        """Of the dense weight: [k, n], or [kh, kw, C/groups, O]."""
        return self.plan.shape

    @property
    def dtype(self) -> np.dtype:
        """Of the values."""
        return self.values.dtype

    @property
    def sparsity(self) -> float:
        """Share of the weights that are pruned."""
        return 1.0 - self.pattern.density

    @takes_variables
    def with_values(self, values: Float[ArrayLike, "kept"]) -> PrunedWeight:
        """The same plan with other values [kept], float32, bfloat16 or float16. A numpy array is
        copied: writing to it later changes nothing.

        Raises:
            TypeError: for another dtype.
            ValueError: when there is not one value for every kept weight.
        """
        return dataclasses.replace(self, values=_unchanging(self._checked(values)))

    def _checked(self, values: Any) -> Any:
        if getattr(values, "dtype", None) not in FLOATS:
            found = getattr(values, "dtype", type(values).__name__)
            raise TypeError(f"values is {found}; it takes float32, bfloat16 or float16")
        if tuple(values.shape) != (self.pattern.entries,):
            raise ValueError(
                f"values has shape {tuple(values.shape)}; "
                f"the pattern keeps {self.pattern.entries} weights"
            )
        return values

    def astype(self, dtype: DTypeLike) -> PrunedWeight:
        """The same plan with values of another dtype; a constant stays one inside of a trace.

        Raises:
            TypeError: for a dtype that is not float32, bfloat16 or float16.
        """
        try:
            known = np.dtype(dtype) in FLOATS
        except TypeError:
            known = False
        if not known:
            raise TypeError(f"dtype={dtype!r}; it takes float32, bfloat16 or float16")
        if self.values.dtype == dtype:
            return self
        values = self.values
        if not is_traced(values):
            values = np.asarray(values)
        return dataclasses.replace(self, values=_unchanging(values.astype(dtype)))

    def from_dense(self, weight: Float[ArrayLike, "..."]) -> PrunedWeight:
        """The same plan with the values that a dense weight of the same shape has at the kept
        entries. Differentiable: the gradient of `weight` is zero elsewhere.

        Args:
            weight: a numpy or jax array of this one's shape, float32, bfloat16 or float16 (float64
                becomes float32). Unless it is traced, the values are a numpy array.

        Raises:
            TypeError: when `weight` is not an array, or has another dtype.
            ValueError: when the shape differs.
        """
        return PrunedWeight.of_kernel(self.plan, weight)

    @staticmethod
    @takes_variables
    def of_kernel(plan: Plan, weight: Float[ArrayLike, "..."]) -> PrunedWeight:
        """A plan with the values of a dense weight, as `from_dense`."""
        return PrunedWeight(_kept(plan, weight), plan)

    def to_dense(self) -> jax.Array:
        """The weight with zeros where it is pruned: [k, n], or [kh, kw, C/groups, O], after the
        leading axes of its values, if there are any.
        """
        where = dense_index(self.pattern, self.shape)
        lead = self.values.shape[:-1]
        flat = jnp.zeros((*lead, int(np.prod(self.shape))), self.values.dtype)
        flat = flat.at[..., where].set(self.values, unique_indices=True)
        return flat.reshape(*lead, *self.shape)

    def save(self, path: str | Path) -> None:
        """Write the plan and the values to one file, without pickle.

        Raises:
            ValueError: for values that `load` would refuse: NaN, Inf, another dtype, leading axes.
        """
        save(path, self.plan, self.values)

    @staticmethod
    def load(path: str | Path) -> PrunedWeight:
        """Read what `save` wrote. Nothing in the file is ever executed.

        Raises:
            OSError: when the file cannot be read.
            ValueError: when the file is truncated, altered, of another version, or does not hold a
                plan, saying what is wrong.
        """
        plan, values = load(path)
        return PrunedWeight(values, plan)

    def __repr__(self) -> str:
        lead = getattr(self.values, "shape", ())[:-1]
        many = f"{list(lead)} of " if lead else ""
        return (
            f"PrunedWeight({self.kind}, {many}{list(self.shape)}, "
            f"{getattr(self.values, 'dtype', '?')}, "
            f"{self.pattern.entries} kept, {100 * self.sparsity:.1f} % pruned)"
        )


def _kept(plan: Plan, weight: Any) -> Any:
    """The values of a dense weight at the kept entries."""
    shape = plan.shape
    check_dense("weight", weight)
    check_array("weight", weight)
    if tuple(weight.shape) != shape:
        raise ValueError(f"weight has shape {tuple(weight.shape)}; the plan is of {shape}")
    dtype = np.dtype(np.float32) if weight.dtype == np.float64 else weight.dtype
    if dtype not in FLOATS:
        raise TypeError(f"weight has dtype {dtype}; it takes float32, bfloat16 or float16")
    where = dense_index(plan.pattern, shape)
    if is_traced(weight):
        return jnp.take(jnp.ravel(weight), where).astype(dtype)
    kept = np.asarray(weight).reshape(-1)[where]
    return _unchanging(kept.astype(dtype, copy=False))


def _unchanging(values: Any) -> Any:
    """`values`, where it is a numpy array one that no code can write to."""
    if isinstance(values, np.ndarray) and (values.flags.writeable or not values.flags.owndata):
        values = values.copy()
        values.flags.writeable = False
    return values
