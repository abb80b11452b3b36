"""`js.nn.linen.MaskedNorm`: flax.linen's normalisations by the statistics of active positions."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
from flax import linen
from flax.linen.dtypes import canonicalize_dtype
from jax.typing import ArrayLike, DTypeLike
from jaxtyping import Array, Bool, Float

from jaxsparse.core.types import Norm
from jaxsparse.ffi import Implementation
from jaxsparse.index import TileIndex
from jaxsparse.nn import norm
from jaxsparse.nn.types import AxisGroups, Initializer


class MaskedNorm(linen.Module):
    """Batch, group or layer normalisation of active positions, by their own statistics.

    Parameters, collections and options are those of `flax.linen.BatchNorm`, `GroupNorm` or
    `LayerNorm`: a checkpoint of theirs loads unchanged, both ways. Statistics are float32, and the
    variance is that of differences to the mean.

    Attributes:
        kind: what shares a mean and a variance: "batch", all active positions of a channel;
            "group", the active positions of a sample and the channels of a group; "layer", the
            channels of a position.
        num_groups: of kind="group"; None where `group_size` says it.
        group_size: channels of a group; then `num_groups` is None.
        use_running_average: of kind="batch": normalise by the averages in "batch_stats", in place
            of the batch's own statistics. Given here or in the call.
        momentum: of the running averages. A batch without an active position leaves them.
        epsilon: added to the variance; None is flax's own of that kind: 1e-5 for "batch", 1e-6 for
            the others.
        dtype: of the result; None is that of inputs and parameters, promoted.
        param_dtype: of the parameters.
        use_bias: whether a bias is added.
        use_scale: whether there is a factor.
        bias_init: zeros.
        scale_init: ones.
        axis_name: a mapped axis (`jax.shard_map`) over whose devices a batch's statistics are
            taken. Under plain jit with sharded arrays they are those of the whole batch without it.
        axis_index_groups: groups of devices of that axis, as in `jax.lax.psum`.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Raises:
        TypeError, ValueError: when the layer is made with an unknown kind or another option out of
            range, naming it.
    """

    TAKES: ClassVar[tuple[str, ...]] = ("mask", "use_running_average")

    kind: Norm = "batch"
    num_groups: int | None = 32
    group_size: int | None = None
    use_running_average: bool | None = None
    momentum: float = 0.99
    epsilon: float | None = None
    dtype: DTypeLike | None = None
    param_dtype: DTypeLike = jnp.float32
    use_bias: bool = True
    use_scale: bool = True
    bias_init: Initializer = linen.initializers.zeros
    scale_init: Initializer = linen.initializers.ones
    axis_name: str | None = None
    axis_index_groups: AxisGroups = None
    implementation: Implementation = None

    def __post_init__(self) -> None:
        norm.check_options(
            self.kind,
            self.num_groups,
            self.group_size,
            self.epsilon,
            self.momentum,
            self.axis_name,
            self.implementation,
            dtype=self.dtype,
            param_dtype=self.param_dtype,
        )
        super().__post_init__()

    @linen.compact
    def __call__(
        self,
        inputs: Float[ArrayLike, "*batch C"],
        mask: Bool[ArrayLike, "*batch"] | TileIndex | None = None,
        use_running_average: bool | None = None,
        *,
        base: Float[ArrayLike, "*batch C"] | None = None,
    ) -> Float[Array, "*batch C"]:
        """`where(mask, (inputs - mean) / sqrt(var + epsilon) * scale + bias, base)`.

        Args:
            inputs: float32, bfloat16 or float16 [*batch, C], one batch axis or more.
            mask: bool[*batch], leading axes of length 1 broadcast, or a `js.TileIndex` of it; None
                stands for all positions.
            use_running_average: of kind="batch", where the layer does not say it.
            base: what the other positions are, in the result's shape and dtype; None means zeros.

        Returns:
            [*batch, C] of `dtype`, or of the promoted dtype. In training (a batch's own statistics)
            "batch_stats" is to be mutable.

        Raises:
            TypeError, ValueError: for a wrong shape, dtype or option, naming the argument.
        """
        norm.check_call(inputs, use_running_average)
        inputs = jnp.asarray(inputs)
        shape = (inputs.shape[-1],)
        training, given = False, None
        means: Any = None
        variances: Any = None
        if self.kind == "batch":
            stored: bool = linen.merge_param(
                "use_running_average", self.use_running_average, use_running_average
            )
            means = self.variable("batch_stats", "mean", lambda: jnp.zeros(shape, jnp.float32))
            variances = self.variable("batch_stats", "var", lambda: jnp.ones(shape, jnp.float32))
            training = not stored
            given = (means.value, variances.value) if stored else None
        scale = self._parameter("scale", self.use_scale, self.scale_init, shape)
        bias = self._parameter("bias", self.use_bias, self.bias_init, shape)
        starting = self.is_initializing()
        y, mean, var, some = norm.run(
            inputs,
            mask,
            base,
            scale,
            bias,
            given,
            dtype=canonicalize_dtype(inputs, scale, bias, dtype=self.dtype),
            kind=self.kind,
            num_groups=self.num_groups,
            group_size=self.group_size,
            epsilon=self.epsilon,
            axis_name=None if starting else self.axis_name,
            axis_index_groups=self.axis_index_groups,
            implementation=self.implementation,
        )
        if training and not starting:
            means.value = norm.moved(means.value, mean, self.momentum, some)
            variances.value = norm.moved(variances.value, var, self.momentum, some)
        return y

    def _parameter(
        self, name: str, used: bool, init: Initializer, shape: tuple[int, ...]
    ) -> jax.Array | None:
        return self.param(name, init, shape, self.param_dtype) if used else None
