"""What is static about one call of `sparse_ffn`."""

import dataclasses

from jax import lax

from jaxsparse.core.types import FfnActivation
from jaxsparse.ffi import Implementation


@dataclasses.dataclass(frozen=True)
class FfnParams:
    """`top_k` 0 keeps every activation."""

    activation: FfnActivation
    top_k: int
    precision: str
    implementation: Implementation = None

    @property
    def lax_precision(self) -> lax.Precision:
        """The precision as jax.lax takes it."""
        return lax.Precision.HIGHEST if self.precision == "highest" else lax.Precision.DEFAULT
