"""What is static about one call of `sparse_ffn`."""

import dataclasses

import jax
from jax import lax

from jaxsparse.core.types import FfnActivation
from jaxsparse.ffi import Implementation


@dataclasses.dataclass(frozen=True)
class FfnParams:
    """`top_k` 0 keeps every activation; `transposed_up`: w_up is [f, d]."""

    activation: FfnActivation
    top_k: int
    precision: str
    implementation: Implementation = None
    transposed_up: bool = False

    def up(self, w_up: jax.Array) -> jax.Array:
        """w_up as [d, f], for XLA: it multiplies by a transposed matrix as it is."""
        return w_up.T if self.transposed_up else w_up

    @property
    def lax_precision(self) -> lax.Precision:
        """The precision as jax.lax takes it."""
        return lax.Precision.HIGHEST if self.precision == "highest" else lax.Precision.DEFAULT
