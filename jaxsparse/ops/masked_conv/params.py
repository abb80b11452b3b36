"""What is static about one call of `masked_conv`."""

import dataclasses

from jaxsparse.core.geometry import Geometry
from jaxsparse.ffi import Implementation
from jaxsparse.select.masked_conv.problem import OP


@dataclasses.dataclass(frozen=True)
class ConvParams:
    """What is static about one call; `called` is the op that the user called. `bare`: nothing is
    added to the sums, they have no activation, and zeros are written where the mask is not set.
    """

    geometry: Geometry
    activation: str | None
    precision: str
    out_dtype: str
    implementation: Implementation = None
    called: str = OP
    bare: bool = False
