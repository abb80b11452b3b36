"""What is static about one call of `masked_matmul`."""

import dataclasses
from collections.abc import Sequence

from jax import lax

from jaxsparse.core.types import Shaped
from jaxsparse.ffi import Implementation
from jaxsparse.select.masked_matmul import OP

#: Rows and columns of a block.
Block = tuple[int, int]
#: Of the masks of a, b and the result.
Blocks = tuple[Block, Block, Block]
#: The masks of a, b and the result, or what describes them.
Masks = Sequence[Shaped | None]


@dataclasses.dataclass(frozen=True)
class MatmulParams:
    """What is static about one call: the block sizes of the masks of a, b and the result, and
    options. `turned`: a is the transpose of an array that exists. `density`: the share of the
    blocks that masks are said to keep. `called`: the op that the user called.
    """

    blocks: Blocks
    precision: str
    out_dtype: str
    implementation: Implementation = None
    turned: bool = False
    density: float | None = None
    called: str = OP

    @property
    def lax_precision(self) -> lax.Precision:
        """The precision as jax.lax takes it."""
        return lax.Precision.HIGHEST if self.precision == "highest" else lax.Precision.DEFAULT
