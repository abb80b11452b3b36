"""One call of an operation, large enough that a pool of threads shares it."""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import jaxsparse as js

Arrays = dict[str, Any]
DTYPES = ("float32", "bfloat16", "float16")


@dataclasses.dataclass(frozen=True)
class Case:
    """A call, and what it means.

    Attributes:
        op: the operation's row in docs/numerics.md.
        floats: name -> float32 operands; the gradient is taken for all of them.
        call: the operation, of the operands by name.
        data: name -> masks and whole numbers.
        meaning: the same in float64. Of operands without signs it gives the size that an error is
            compared with, unless `size` does.
        size: operands in float64 -> that size.
        sizes: what the page's formula for K names.
        rows: operand -> the axis along which the call treats each entry alone; every result has it
            first. Empty where there is none.
        dtypes: that the operation takes.
        name: of the case, where an operation has several.
    """

    op: str
    floats: Arrays
    call: Callable[..., Any]
    data: Arrays = dataclasses.field(default_factory=dict)
    meaning: Callable[..., Any] | None = None
    size: Callable[..., Any] | None = None
    sizes: dict[str, int] = dataclasses.field(default_factory=dict)
    rows: dict[str, int] = dataclasses.field(default_factory=dict)
    dtypes: tuple[str, ...] = DTYPES
    name: str = ""

    def __str__(self) -> str:
        return self.name or self.op

    def operands(self, dtype: str) -> tuple[Arrays, Arrays]:
        """The floats in this dtype, and the rest."""
        floats = {n: jnp.asarray(np.asarray(v).astype(dtype)) for n, v in self.floats.items()}
        return floats, {n: jnp.asarray(v) for n, v in self.data.items()}

    def results(self, **options: Any) -> Callable[[Arrays, Arrays], list[jax.Array]]:
        """(floats, data) -> every array of the result, jitted, with options of `js.config`."""

        def run(floats: Arrays, data: Arrays) -> list[jax.Array]:
            with js.config(**options):
                return jax.tree.leaves(self.call(**floats, **data))

        return jax.jit(run)

    def with_gradient(self, **options: Any) -> Callable[[Arrays, Arrays], Any]:
        """(floats, data) -> (results, gradients by name), jitted, with options of `js.config`. What
        an entry of a result counts for depends on its place in its row alone.
        """

        def loss(floats: Arrays, data: Arrays) -> tuple[jax.Array, Any]:
            total, found = jnp.float32(0), jax.tree.leaves(self.call(**floats, **data))
            for leaf in found:
                if jnp.issubdtype(leaf.dtype, jnp.floating):
                    weights = jnp.sin(jnp.arange(leaf[0].size, dtype=jnp.float32))
                    total += (leaf.astype(jnp.float32) * weights.reshape(leaf.shape[1:])).sum()
            return total, found

        def run(floats: Arrays, data: Arrays) -> Any:
            with js.config(**options):
                if not floats:
                    return loss(floats, data)[1], {}
                gradients, found = jax.grad(loss, has_aux=True)(floats, data)
                return found, gradients

        return jax.jit(run)
