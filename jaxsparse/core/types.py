"""The options of public functions, as types: a type checker refuses a name that no op takes."""

from typing import Literal

import jax
import numpy as np

#: What a layer fuses behind its bias; None stands for the identity.
Activation = Literal["relu", "relu6", "silu", "gelu"]

#: Of a mixture's expert.
ExpertActivation = Literal["swiglu", "relu", "gelu", "silu"]

#: Of a feed-forward network that skips zeros: "relu2" is relu(v) ** 2.
FfnActivation = Literal["relu", "relu2"]

#: Rows and columns: one int for both, or one each.
Pair = int | tuple[int, int]

#: Of a convolution: a name, one int for all sides, or (rows, columns), each an int for both sides
#: or (low, high).
Padding = Literal["SAME", "SAME_LOWER", "VALID"] | int | tuple[Pair, Pair]

#: Where the tiles of an index begin: at multiples of their size, or at their component's corner.
Align = Literal["grid", "component"]

#: What a pruned weight is for.
Kind = Literal["matmul", "conv"]

#: The order of an image's axes.
Layout = Literal["NHWC", "NCHW"]

#: How a bounded layer on a GPU goes through its work.
Dataflow = Literal["row", "slab", "column", "converged"]

#: How a variant is chosen.
Selection = Literal["static", "device", "switch"]

#: What has a shape and a dtype: an array, or one that a trace or a plan only describes.
Shaped = jax.Array | np.ndarray | jax.ShapeDtypeStruct

#: What shares the statistics of a normalisation.
Norm = Literal["batch", "group", "layer"]

#: What a pooling makes of a window.
Pooling = Literal["max", "avg"]
