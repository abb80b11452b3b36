"""How long a segment should be: the length with the fewest expected accesses to global memory.

Reading and writing a segment costs its length when it is mixed (probability 1 - p^m when an element
is at the bound with probability p) and nothing when its code is set; every segment costs its codes.
"""

from collections.abc import Sequence
from typing import Literal

import numpy as np

from jaxsparse.core.types import Dataflow

#: Outputs of one block of the GPU's kernels.
SLAB = 1024
DATAFLOWS = ("row", "slab", "column", "converged", "persistent")


def expected_accesses(
    n: int, segment: int, p_in: float, p_out: float, dataflow: Dataflow | Literal["persistent"]
) -> float:
    """Accesses of one block to activations and flags, per row of n elements.

    Args:
        n: elements of a row.
        segment: elements of a segment.
        p_in: the share of elements at a bound before the layer, in [0, 1].
        p_out: the same after it.
        dataflow: "row" and "persistent" write a whole row, "slab" one segment of it, "column" and
            "converged" one segment of each of their images.

    Raises:
        ValueError: for a probability outside [0, 1], a segment below 1, or an unknown dataflow.
    """
    if dataflow not in DATAFLOWS:
        raise ValueError(f"dataflow={dataflow!r} is not one of {', '.join(map(repr, DATAFLOWS))}")
    if segment < 1 or not (0 <= p_in <= 1 and 0 <= p_out <= 1):
        raise ValueError(
            f"segment={segment}, p_in={p_in}, p_out={p_out}: "
            "a segment has at least one element and shares lie in [0, 1]"
        )
    segments = n / segment
    read = n * (1 - p_in**segment)
    if dataflow == "slab":
        return segments + 1 + read + segment * (1 - p_out**segment)
    if dataflow in ("column", "converged"):
        return segments + read + (segment + 1) * (1 - p_out**segment)
    return 2 * segments + read + n * (1 - p_out**segment)


def choose_segment(
    n: int,
    saturation: float | Sequence[tuple[float, float]] = 0.03,
    *,
    dataflow: Dataflow | Literal["persistent"] = "row",
    shortest: int = SLAB,
) -> int:
    """The power of two from `shortest` to n with the fewest expected accesses over all layers.

    Args:
        n: elements of a row.
        saturation: a guess of the share of elements at a bound, or (before, after) of each layer as
            measured.
        dataflow: as in `expected_accesses`.
        shortest: the least length: a block's outputs, so that a block decides its segments alone.

    Returns:
        The segment's length; n itself where n is below `shortest`.
    """
    layers = (
        [(float(saturation),) * 2] if np.ndim(saturation) == 0 else list(saturation)  # pyright: ignore
    )
    if n <= shortest:
        return max(n, 1)
    longest = max(min(n, SLAB), shortest) if dataflow == "slab" else n
    return min(
        [1 << k for k in range(31) if shortest <= 1 << k <= longest] or [n],
        key=lambda m: sum(expected_accesses(n, m, p, q, dataflow) for p, q in layers),
    )
