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

    #: where the layer's `starts` begin
    STARTS = 0
    #: where its quads of indices begin
    INDEX_QUADS = 1
    #: where its `bias` begins
    BIASES = 2
    #: its inputs: the distinct rows of the layer before
    INPUTS = 3
    #: its distinct rows
    DISTINCT = 4
    #: which states retire after it, a `RetireFlag`
    RETIRES = 5
    #: where its quads of weights begin
    WEIGHT_QUADS = 6
    #: rows of a unit: 1, or 16, a bundle
    UNIT_ROWS = 7
