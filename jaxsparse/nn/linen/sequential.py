"""`js.nn.linen.Sequential`: layers one after the other, with masks and recorders."""

from __future__ import annotations

from flax import linen

from jaxsparse.nn.linen.layer import Layer
from jaxsparse.nn.sequential import SequentialCall


class Sequential(SequentialCall, Layer, linen.Sequential):
    """flax's Sequential for layers with masks and recorders.

    The recorder of a layer (`MaskedConv(record=True)`, `BoundedDense`) is passed to the next layer,
    which does not read the values that the recorder has decided. A layer that does not take a
    recorder gets the values alone. Parameters have flax's own names: a checkpoint of a
    `flax.linen.Sequential` of the dense layers loads unchanged.

    Attributes:
        layers: modules and functions of one array.

    Raises:
        ValueError: when `layers` is not a sequence.
    """
