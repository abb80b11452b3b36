"""`js.nn.nnx.MaskedNorm`: flax.nnx's normalisations by the statistics of active positions."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

import jax.numpy as jnp
from flax import nnx
from flax.nnx.nn.dtypes import canonicalize_dtype
from jax import Array
from jax.typing import DTypeLike

from jaxsparse.core.checks import check_positive
from jaxsparse.core.types import Norm
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import named
from jaxsparse.nn import norm
from jaxsparse.nn.checks import check_rngs
from jaxsparse.nn.nnx.layer import Layer
from jaxsparse.nn.types import AxisGroups, Initializer

_ZEROS: Initializer = nnx.initializers.zeros_init()
_ONES: Initializer = nnx.initializers.ones_init()


class MaskedNorm(norm.MaskedNormCall, Layer, nnx.Module):
    """Batch, group or layer normalisation of active positions, by their own statistics.

    Parameters, statistics and options are those of `flax.nnx.BatchNorm`, `GroupNorm` or
    `LayerNorm`: the state of one loads unchanged, both ways. Statistics are float32, and the
    variance is that of differences to the mean. `train()` and `eval()` set `use_running_average`.

    Args:
        num_features: channels.
        kind: what shares a mean and a variance: "batch", all active positions of a channel;
            "group", the active positions of a sample and the channels of a group; "layer", the
            channels of a position.
        num_groups: with kind="group"; None where `group_size` is given.
        group_size: channels of a group; then `num_groups` is None.
        use_running_average: with kind="batch": normalise by the running averages, in place of the
            batch's own statistics.
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
        rngs: `nnx.Rngs` that the parameters are drawn from.
        bias_metadata: of the bias, as in flax.
        scale_metadata: of the scale, as in flax.

    Raises:
        TypeError, ValueError: for an unknown kind or another option out of range, naming it.
    """

    def __init__(
        self,
        num_features: int,
        *,
        kind: Norm = "batch",
        num_groups: int | None = 32,
        group_size: int | None = None,
        use_running_average: bool | None = False,
        momentum: float = 0.99,
        epsilon: float | None = None,
        dtype: DTypeLike | None = None,
        param_dtype: DTypeLike = jnp.float32,
        use_bias: bool = True,
        use_scale: bool = True,
        bias_init: Initializer = _ZEROS,
        scale_init: Initializer = _ONES,
        axis_name: str | None = None,
        axis_index_groups: AxisGroups = None,
        implementation: Implementation = None,
        rngs: nnx.Rngs,
        bias_metadata: Mapping[str, object] = MappingProxyType({}),
        scale_metadata: Mapping[str, object] = MappingProxyType({}),
    ) -> None:
        norm.check_options(
            kind,
            num_groups,
            group_size,
            epsilon,
            momentum,
            axis_name,
            implementation,
            dtype=dtype,
            param_dtype=param_dtype,
        )
        check_rngs(rngs)
        shape = (check_positive("num_features", num_features),)
        self.mean: Any = nnx.data(None)
        self.var: Any = nnx.data(None)
        if kind == "batch":
            self.mean = nnx.BatchStat(jnp.zeros(shape, jnp.float32))
            self.var = nnx.BatchStat(jnp.ones(shape, jnp.float32))

        def parameter(used: bool, init: Initializer, metadata: Mapping[str, Any]) -> Any:
            if not used:
                return nnx.data(None)
            return nnx.Param(init(rngs.params(), shape, param_dtype), **metadata)

        self.scale = parameter(use_scale, scale_init, scale_metadata)
        self.bias = parameter(use_bias, bias_init, bias_metadata)
        self.num_features = num_features
        self.kind: Norm = kind
        self.num_groups, self.group_size = num_groups, group_size
        self.use_running_average = use_running_average
        self.momentum, self.epsilon, self.dtype = momentum, epsilon, dtype
        self.param_dtype, self.use_bias, self.use_scale = param_dtype, use_bias, use_scale
        self.axis_name, self.axis_index_groups = axis_name, axis_index_groups
        self.implementation: Implementation = named(implementation)

    def _affine(self, inputs: Array) -> tuple[Array | None, Array | None]:
        if inputs.shape[-1] != self.num_features:
            raise ValueError(
                f"inputs has {inputs.shape[-1]} channels; num_features={self.num_features}"
            )
        scale: Array | None = None if self.scale is None else self.scale[...]
        return scale, None if self.bias is None else self.bias[...]

    def _averages(self, inputs: Array, asked: bool | None) -> tuple[bool, norm.Statistics]:
        del inputs
        stored = self.use_running_average if asked is None else asked
        if stored is None:
            raise ValueError(
                "use_running_average is None: give it to the layer, to its call, or by "
                "train() and eval()"
            )
        return stored, (self.mean[...], self.var[...])

    def _move(self, mean: Array, var: Array) -> None:
        self.mean[...], self.var[...] = mean, var

    def _result_dtype(self, inputs: Array, *arrays: Array | None) -> DTypeLike:
        averages = (self.mean[...], self.var[...]) if self.kind == "batch" else ()
        return canonicalize_dtype(inputs, *averages, *arrays, dtype=self.dtype)

    def set_view(self, use_running_average: bool | None = None) -> None:
        """What `nnx.view` sets; None leaves it."""
        if use_running_average is not None:
            self.use_running_average = use_running_average
