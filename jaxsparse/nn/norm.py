"""What the linen and the nnx `MaskedNorm` share: the options they refuse, and the masked call."""

from __future__ import annotations

from typing import Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import ArrayLike
from jaxtyping import Array, Bool, Float

from jaxsparse.core.checks import check_like_result as like_result
from jaxsparse.core.checks import check_positive
from jaxsparse.core.types import Norm
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.platform import wishes
from jaxsparse.index import TileIndex
from jaxsparse.nn.checks import check_array, check_dtypes
from jaxsparse.nn.types import AxisGroups
from jaxsparse.ops import masked_norm
from jaxsparse.ops.masked_norm.api import KINDS, positions

#: flax's own: of BatchNorm, GroupNorm and LayerNorm.
_EPSILON = {"batch": 1e-5, "group": 1e-6, "layer": 1e-6}

Statistics = tuple[jax.Array, jax.Array]


def check_options(
    kind: Norm,
    num_groups: int | None,
    group_size: int | None,
    epsilon: float | None,
    momentum: float,
    axis_name: object,
    implementation: Implementation,
    **dtypes: Any,
) -> None:
    """Refuse what a MaskedNorm cannot take.

    Raises:
        TypeError, ValueError: naming the argument, what came, and what is needed.
    """
    if kind not in KINDS:
        raise ValueError(f"kind={kind!r} is not one of {', '.join(map(repr, KINDS))}")
    if kind == "group" and (num_groups is None) == (group_size is None):
        raise ValueError(
            f"num_groups={num_groups!r} and group_size={group_size!r}: kind='group' takes one of "
            "them, and None for the other"
        )
    for name, value in (("num_groups", num_groups), ("group_size", group_size)):
        if value is not None:
            check_positive(name, value)
    if epsilon is not None and (not _is_number(epsilon) or not epsilon > 0):
        raise ValueError(f"epsilon={epsilon!r}; it takes None or a number > 0")
    if not _is_number(momentum) or not 0 <= momentum <= 1:
        raise ValueError(f"momentum={momentum!r}; it takes a number from 0 to 1")
    if axis_name is not None and kind != "batch":
        raise ValueError(f"axis_name={axis_name!r} is for kind='batch'")
    wishes(implementation)
    check_dtypes(**dtypes)


def _is_number(value: object) -> bool:
    return isinstance(value, (int, float, np.number)) and not isinstance(value, bool)


def check_call(inputs: Any, use_running_average: object) -> None:
    """What a MaskedNorm is called with; the mask is left to the op.

    Raises:
        TypeError, ValueError: naming the argument.
    """
    check_array("inputs", inputs, "positions C")
    if use_running_average is not None and not isinstance(use_running_average, (bool, np.bool_)):
        raise TypeError(
            "use_running_average must be a bool or None, not "
            f"{type(use_running_average).__name__}: it follows the mask, or is named"
        )


class MaskedNormCall:
    """The call of both layers."""

    TAKES: ClassVar[tuple[str, ...]] = ("mask", "use_running_average")

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
            use_running_average: with kind="batch": overrides an nnx layer's own setting, and gives
                a linen layer's where the layer does not have it.
            base: what the other positions are, in the result's shape and dtype; None means zeros.

        Returns:
            [*batch, C] of `dtype`, or of the promoted dtype. With a batch's own statistics the
            running averages are updated: linen's "batch_stats" must be mutable.

        Raises:
            TypeError, ValueError: for a wrong shape, dtype or option, naming the argument.
        """
        layer: Any = self
        check_call(inputs, use_running_average)
        inputs = jnp.asarray(inputs)
        parameters = layer._affine(inputs)
        training, averages, given = False, None, None
        if layer.kind == "batch":
            stored, averages = layer._averages(inputs, use_running_average)
            given = averages if stored else None
            training = not stored
        dtype = layer._result_dtype(inputs, *parameters)
        initial = getattr(layer, "is_initializing", bool)()  # linen's: nothing is averaged
        axis_name = None if initial else layer.axis_name
        y, *found, some = _run(layer, inputs, mask, base, parameters, given, dtype, axis_name)
        if averages is not None and training and not initial:
            pairs = zip(averages, found, strict=True)
            layer._move(*(_moved(old, new, layer.momentum, some) for old, new in pairs))
        return y


def _run(
    layer: Any,
    inputs: jax.Array,
    mask: ArrayLike | TileIndex | None,
    base: ArrayLike | None,
    parameters: tuple[jax.Array | None, jax.Array | None],
    given: Statistics | None,
    dtype: Any,
    axis_name: str | None,
) -> tuple[jax.Array, jax.Array, jax.Array, jax.Array]:
    """`js.masked_norm` with a result of `dtype`: that, the mean and the variance that it used, and
    whether a position is active, bool[], on any device of `axis_name`.

    Raises:
        TypeError, ValueError: naming the layer's argument; and what `js.masked_norm` raises.
    """
    shape, result = inputs.shape, jnp.dtype(dtype)
    if base is not None:
        check_array("base", base, "")
        base = jnp.asarray(base)
        like_result("base", base, shape, result)
    wide = result if inputs.dtype == result else jnp.float32
    x = inputs.astype(wide)
    if mask is None:
        mask = jnp.ones(shape[:-1], bool)
    active = positions("mask", mask, shape[:-1])
    some = active.any()
    if axis_name is not None:
        some = jax.lax.pmax(some, axis_name, axis_index_groups=layer.axis_index_groups)
        if given is None:
            given = _over_devices(x, active, axis_name, layer.axis_index_groups)
    mean, var = given or (None, None)
    y, *found = masked_norm(
        x,
        active,
        kind=layer.kind,
        groups=_groups(layer.kind, layer.num_groups, layer.group_size, shape[-1]),
        scale=parameters[0],
        bias=parameters[1],
        mean=mean,
        var=var,
        epsilon=_EPSILON[layer.kind] if layer.epsilon is None else float(layer.epsilon),
        base=None if base is None else base.astype(wide),
        return_statistics=True,
        implementation=layer.implementation,
    )
    mean, var = given or found
    return y.astype(result), mean, var, some


def _groups(
    kind: Norm, num_groups: int | None, group_size: int | None, channels: int
) -> int | None:
    """How many groups there are, of kind="group"."""
    if kind != "group":
        return None
    count = num_groups
    if group_size is not None:
        count = channels // group_size
        if count * group_size != channels:
            raise ValueError(f"group_size={group_size} does not divide inputs' {channels} channels")
    assert count is not None
    if channels % count:
        raise ValueError(f"num_groups={count} does not divide inputs' {channels} channels")
    return count


def _over_devices(
    x: jax.Array, active: jax.Array, axis_name: str, axis_index_groups: AxisGroups
) -> Statistics:
    """Mean and variance [C] of the active positions of all devices of a mapped axis, float32."""

    def total(value: jax.Array) -> jax.Array:
        of_mine = value.sum(tuple(range(value.ndim - 1)))
        found: jax.Array = jax.lax.psum(of_mine, axis_name, axis_index_groups=axis_index_groups)
        return found

    held = active[..., None]
    kept = jnp.where(held, x, jnp.zeros_like(x)).astype(jnp.float32)
    number = jnp.maximum(total(held.astype(jnp.float32)), 1.0)
    mean = total(kept) / number
    apart = jnp.where(held, kept - mean, 0.0)
    return mean, total(apart * apart) / number


def _moved(old: jax.Array, new: jax.Array, momentum: float, some: jax.Array) -> jax.Array:
    """A running average after a batch; a batch without an active position leaves it."""
    step = momentum * old + (1 - momentum) * new.astype(old.dtype)
    return jax.lax.stop_gradient(jnp.where(some, step, old))
