"""`js.nn.linen.MaskedNorm`: flax.linen's normalisations by the statistics of active positions."""

from __future__ import annotations

import jax
import jax.numpy as jnp
from flax import linen
from flax.linen.dtypes import canonicalize_dtype
from jax.typing import DTypeLike

from jaxsparse.core.types import Norm
from jaxsparse.ffi import Implementation
from jaxsparse.nn import norm
from jaxsparse.nn.linen.layer import Layer
from jaxsparse.nn.types import AxisGroups, Initializer


class MaskedNorm(norm.MaskedNormCall, Layer, linen.Module):
    """Batch, group or layer normalisation of active positions, by their own statistics.

    Parameters, collections and options are those of `flax.linen.BatchNorm`, `GroupNorm` or
    `LayerNorm`: a checkpoint of theirs loads unchanged, both ways. Statistics are float32, and the
    variance is that of differences to the mean.

    Attributes:
        kind: what shares a mean and a variance: "batch", all active positions of a channel;
            "group", the active positions of a sample and the channels of a group; "layer", the
            channels of a position.
        num_groups: with kind="group"; None where `group_size` is given.
        group_size: channels of a group; then `num_groups` is None.
        use_running_average: with kind="batch": normalise by the averages in "batch_stats", in place
            of the batch's own statistics. Give it here or in the call.
        momentum: of the running averages. A batch without an active position does not change them.
        epsilon: added to the variance; None is flax's own of that kind: 1e-5 for "batch", 1e-6 for
            the others.
        dtype: of the result; None is that of inputs and parameters, promoted.
        param_dtype: of the parameters.
        use_bias: whether a bias is added.
        use_scale: whether there is a factor.
        bias_init: initialiser of the bias; zeros by default.
        scale_init: initialiser of the factor; ones by default.
        axis_name: a mapped axis (`jax.shard_map`) over whose devices a batch's statistics are
            taken. Under plain jit with sharded arrays they are those of the whole batch without it.
        axis_index_groups: groups of devices of that axis, as in `jax.lax.psum`.
        implementation: None (best available), "cuda", "cpu", "reference", or a sequence of them.

    Raises:
        TypeError, ValueError: when the layer is made with an unknown kind or another option out of
            range, naming it.
    """

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

    def _affine(self, inputs: jax.Array) -> tuple[jax.Array | None, jax.Array | None]:
        shape, dtype = (inputs.shape[-1],), self.param_dtype
        scale = self.param("scale", self.scale_init, shape, dtype) if self.use_scale else None
        return scale, self.param("bias", self.bias_init, shape, dtype) if self.use_bias else None

    def _averages(self, inputs: jax.Array, asked: bool | None) -> tuple[bool, norm.Statistics]:
        stored: bool = linen.merge_param("use_running_average", self.use_running_average, asked)
        shape = (inputs.shape[-1],)
        mean = self.variable("batch_stats", "mean", lambda: jnp.zeros(shape, jnp.float32))
        var = self.variable("batch_stats", "var", lambda: jnp.ones(shape, jnp.float32))
        return stored, (mean.value, var.value)

    def _move(self, mean: jax.Array, var: jax.Array) -> None:
        self.put_variable("batch_stats", "mean", mean)
        self.put_variable("batch_stats", "var", var)

    def _result_dtype(self, *arrays: jax.Array | None) -> DTypeLike:
        return canonicalize_dtype(*arrays, dtype=self.dtype)
