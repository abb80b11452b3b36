"""`js.nn.nnx.Sequential`: layers one after the other, with masks and recorders."""

from __future__ import annotations

from flax import nnx

from jaxsparse.nn.sequential import SequentialCall


class Sequential(SequentialCall, nnx.Sequential):
    """flax's Sequential for layers with masks and recorders.

    The recorder of a layer (`MaskedConv(record=True)`, `BoundedDense`) is passed to the next layer,
    which does not read the values that the recorder has decided. A layer that does not take a
    recorder gets the values alone. The state of a `flax.nnx.Sequential` of the dense layers loads
    unchanged. As flax's it is made of modules and functions of one array.
    """
