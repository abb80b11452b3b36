"""Values and table columns that Python and the native handlers share.

Made by `cmake/generate_contracts.py` from `contracts/*.toml`; a test compares.
"""

import enum


class Activation(enum.IntEnum):
    """Values of `Activation` in the contracts."""

    NONE = 0
    RELU = 1
    RELU6 = 2
    SILU = 3
    GELU = 4


class Precision(enum.IntEnum):
    """Values of `Precision` in the contracts."""

    DEFAULT = 0
    HIGHEST = 1


class Dataflow(enum.IntEnum):
    """Values of `Dataflow` in the contracts."""

    ROW = 0
    SLAB = 1
    COLUMN = 2
    AUTOMATIC = 3


class SegmentCode(enum.IntEnum):
    """Values of `SegmentCode` in the contracts."""

    MIXED = 0
    ZERO = 1
    UPPER = 2


class RetireFlag(enum.IntFlag):
    """Values of `RetireFlag` in the contracts."""

    ZERO = 1
    UPPER = 2


class CpuExecutor(enum.IntEnum):
    """Values of `CpuExecutor` in the contracts."""

    STRIPS = 0
    DOTS = 1
    DEPTHWISE = 2


class BoundedNetworkRow(enum.IntEnum):
    """Columns of a `BoundedNetworkRow`, uint32."""

    #: position in `starts` at which the layer begins
    STARTS = 0
    #: position in `indices` at which the layer begins, divided by 4
    INDEX_QUADS = 1
    #: position in `bias` at which the layer begins
    BIASES = 2
    #: number of inputs: the distinct rows of the layer before
    INPUTS = 3
    #: number of distinct rows of the layer
    DISTINCT = 4
    #: which states retire after the layer, a `RetireFlag`
    RETIRES = 5
    #: position in `weights` at which the layer begins, divided by 4
    WEIGHT_QUADS = 6
    #: number of rows of a unit: 1, or 16 for a bundle
    UNIT_ROWS = 7
