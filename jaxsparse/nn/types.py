"""The types that the constructors of layers share."""

from collections.abc import Callable, Sequence
from typing import Literal

import jax
from jax.typing import DTypeLike

from jaxsparse.core.types import Padding, Pair

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
