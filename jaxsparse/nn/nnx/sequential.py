"""`js.nn.nnx.Sequential`: layers one after the other, with masks and recorders."""

from __future__ import annotations

from collections.abc import Sequence

from flax import nnx
from jax.typing import ArrayLike

from jaxsparse.nn import sequential
from jaxsparse.nn.types import Flow, LayerMask


class Sequential(nnx.Sequential):
    """flax's Sequential for layers with masks and recorders.

    The recorder of a layer (`MaskedConv(record=True)`, `BoundedDense`) is passed to the next layer,
    which does not read the values that the recorder has decided. A layer that does not take a
    recorder gets the values alone. The state of a `flax.nnx.Sequential` of the dense layers loads
    unchanged. As flax's it is made of modules and functions of one array.
    """

    def __call__(  # pyright: ignore[reportIncompatibleMethodOverride]
        self,
        inputs: ArrayLike | Flow,
        mask: LayerMask | Sequence[LayerMask] = None,
        *,
        use_running_average: bool | None = None,
    ) -> Flow:
        """The layers, one after the other.

        Args:
            inputs: what the first layer takes; or a pair (array, `js.recorder.Recorder`).
            mask: for every layer of this package that takes one: a mask or a `js.TileIndex`; or a
                list with an entry for each layer, None for those that take none.
            use_running_average: for each MaskedNorm.

        Returns:
            What the last layer returns: an array, a pair (array, Recorder) of a convolution that
            records, or `js.bounded.Activations`.

        Raises:
            TypeError, ValueError: for masks that do not go with the layers; and what a layer
                raises.
        """
        return sequential.apply(self.layers, inputs, mask, use_running_average)
