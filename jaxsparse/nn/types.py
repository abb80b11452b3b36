"""The types that the constructors of layers share."""

from collections.abc import Callable, Sequence
from typing import Literal

import jax
from jax.typing import ArrayLike, DTypeLike

from jaxsparse.bounded.activations import Activations
from jaxsparse.core.types import Padding, Pair
from jaxsparse.index import TileIndex
from jaxsparse.recorder import Recorder

#: Draws a parameter: (key, shape, dtype) -> array, as `jax.nn.initializers` have them.
Initializer = Callable[[jax.Array, tuple[int, ...], DTypeLike], jax.Array]

#: flax's: one int for all axes, or one each; None is 1.
Steps = int | Sequence[int] | None

#: Of a masked convolution; a sequence has an entry for rows and one for columns.
MaskedPadding = Padding | Sequence[Pair]

#: Of a pruned convolution, which also takes flax's paddings that repeat the image.
PrunedPadding = Literal["CIRCULAR", "REFLECT"] | MaskedPadding

#: Who chooses whom in a mixture: a token its experts, or an expert its tokens.
RoutingRule = Literal["top_k", "expert_choice"]

#: What layers hand on: values, with what is known of them where a layer records.
Flow = jax.Array | tuple[jax.Array, Recorder] | Activations

#: Of one layer; None: every position, or a layer that takes none.
LayerMask = ArrayLike | TileIndex | None

#: Devices of a mapped axis that reduce together, as in `jax.lax.psum`.
AxisGroups = Sequence[Sequence[int]] | None
