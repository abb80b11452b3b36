"""`js.record_masks`: the masks that a model's operations are given while it runs."""

from collections.abc import Callable, Iterable
from typing import Any

import jax
import numpy as np

from jaxsparse.index import TileIndex
from jaxsparse.select.sites import Site, listening

#: The operations whose masks `record_masks` sees.
RECORDED = ("masked_conv", "masked_dense")


def record_masks(fn: Callable[..., object], batches: Iterable[object]) -> list[np.ndarray]:
    """The masks of the operations with a `TileIndex` when `fn` runs on batches: `masked_conv` and
    `masked_dense`.

    Pass them to `js.tune(fn, ..., masks=)`: variants are then measured on masks of your own data,
    not on generated ones (DynaSpa, section 3.2, searches on such a sample).

    Args:
        fn: a function that can be jitted. It is compiled again, with code that copies its masks to
            the host, and run on each batch; its result is dropped.
        batches: `fn` is called once for each item: a tuple holds the arguments of the call,
            anything else is the only argument.

    Returns:
        bool[B, H, W] arrays, each different mask once, in the order in which they were first seen
        within a batch's run (the operations of one run have no order among them).

    Raises:
        TypeError: when `fn` is not callable, or `batches` is one array.
        ValueError: when no operation in `fn` has a `TileIndex`, or `batches` is empty.
    """
    found: dict[tuple[tuple[int, ...], bytes], np.ndarray] = {}

    def keep(mask: np.ndarray) -> None:
        whole = np.asarray(mask)
        for one in whole.reshape(-1, *whole.shape[-3:]):
            found.setdefault((one.shape, np.packbits(one).tobytes()), one.copy())

    def see(site: Site, operands: tuple[Any, ...], count: jax.Array) -> None:
        for index in (each for each in operands if isinstance(each, TileIndex)):
            jax.debug.callback(keep, index.to_mask())

    if not callable(fn):
        raise TypeError(f"fn must be callable, not {type(fn).__name__}")
    if hasattr(batches, "shape"):
        raise TypeError("batches is one array: it takes a sequence, [batch], of one item a call")
    ran = 0
    with listening(see):
        run = jax.jit(lambda *args: fn(*args))
        for batch in batches:
            jax.block_until_ready(run(*batch) if isinstance(batch, tuple) else run(batch))
            jax.effects_barrier()
            ran += 1
    if not ran:
        raise ValueError("batches is empty; it takes at least one call's arguments")
    if not found:
        raise ValueError(
            "fn calls no operation whose mask becomes a TileIndex that js.tune measures: "
            f"{', '.join(RECORDED)}"
        )
    return list(found.values())
