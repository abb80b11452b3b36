"""What the linen and the nnx `Sequential` share: which layer is handed what."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from jax.typing import ArrayLike

from jaxsparse.bounded.activations import Activations
from jaxsparse.nn.types import Flow, LayerMask
from jaxsparse.recorder import Recorder


class SequentialCall:
    """The call of both layers. A layer that names "mask", "recorder" or "use_running_average" in
    `TAKES` gets it as an argument; a recorder is passed only to the layer after the one that
    recorded it.
    """

    def __call__(
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
            TypeError, ValueError: for masks that do not fit the layers; and what a layer raises.
        """
        this: Any = self
        layers: Sequence[Callable[..., Any]] = this.layers
        if not layers:
            raise ValueError("Sequential has no layers")
        masks = _each(mask, layers)
        value, recorder = _parted(inputs)
        for layer, own in zip(layers, masks, strict=True):
            takes = getattr(layer, "TAKES", ())
            options: dict[str, Any] = {}
            if "mask" in takes:
                options["mask"] = own
            if "use_running_average" in takes:
                options["use_running_average"] = use_running_average
            if "recorder" in takes:
                options["recorder"] = recorder
            elif recorder is not None and not recorder.stored:
                value = recorder.fill(value)
            if isinstance(value, Activations) and "activations" not in takes:
                value = value.materialize()
            value, recorder = _parted(layer(value, **options))
        return value if recorder is None else (value, recorder)


def _parted(value: Any) -> tuple[Any, Recorder | None]:
    """An array and its recorder, if it has one."""
    if isinstance(value, tuple) and len(value) == 2 and isinstance(value[1], Recorder):
        return value
    return value, None


def _each(
    mask: LayerMask | Sequence[LayerMask], layers: Sequence[Callable[..., Any]]
) -> Sequence[Any]:
    """The mask of each layer."""
    if not isinstance(mask, (list, tuple)):
        return [mask] * len(layers)
    if len(mask) != len(layers):
        raise ValueError(
            f"mask has {len(mask)} entries; Sequential has {len(layers)} layers and takes one mask "
            "for all of them, or one for each (None where a layer takes none)"
        )
    for i, (own, layer) in enumerate(zip(mask, layers, strict=True)):
        if own is not None and "mask" not in getattr(layer, "TAKES", ()):
            name = getattr(layer, "__name__", type(layer).__name__)
            raise TypeError(f"mask[{i}] is for {name}, which takes none: it must be None")
    return mask
