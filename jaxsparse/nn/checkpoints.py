"""The package's pytrees in flax's checkpoints: `flax.serialization` writes their arrays and
their static fields, which a target must share. Run once `flax.serialization` is imported.
"""

import dataclasses
import hashlib
from typing import Any

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
from flax import serialization

from jaxsparse.bounded.activations import Activations
from jaxsparse.bounded.layer import Layer
from jaxsparse.bounded.packed import Network
from jaxsparse.index.blocks import BlockMask
from jaxsparse.index.packing import TokenPacking
from jaxsparse.index.types import TileIndex
from jaxsparse.pruned.weight import PrunedWeight
from jaxsparse.recorder import Recorder

STATIC = "static"
#: Static, and free to differ: how something is run, not what it is.
_FREE = ("implementation",)
KINDS = (Activations, BlockMask, Layer, Network, PrunedWeight, Recorder, TileIndex, TokenPacking)


def _children(value: Any) -> dict[str, Any]:
    """The data fields of one of `KINDS`."""
    entries, _ = jax.tree_util.tree_flatten_with_path(value, is_leaf=lambda v: v is not value)
    return {path[0].name: child for path, child in entries}


def _facts(value: Any) -> dict[str, Any]:
    """What is static of one of `KINDS`, as msgpack has it."""
    if isinstance(value, PrunedWeight):
        p = value.pattern
        arrays = (np.asarray(a, "<i4").tobytes() for a in (p.indptr, p.indices))
        digest = hashlib.sha256(b"".join(arrays)).hexdigest()
        told = {"kind": value.kind, "shape": value.shape, "groups": p.groups, "pattern": digest}
    else:
        data = _children(value)
        names = [f.name for f in dataclasses.fields(value) if f.name not in (*data, *_FREE)]
        told = {name: getattr(value, name) for name in names}
    found: dict[str, Any] = msgspec.msgpack.decode(_encode(told))
    return found


def _encode(told: dict[str, Any]) -> bytes:
    return msgspec.msgpack.encode(told, enc_hook=lambda number: number.item())


def to_state(value: Any) -> dict[str, Any]:
    """The state dict of one of `KINDS`: its arrays by name, and `STATIC`, uint8[bytes]."""
    state = {k: serialization.to_state_dict(child) for k, child in _children(value).items()}
    return state | {STATIC: np.frombuffer(_encode(_facts(value)), np.uint8)}


def from_state(target: Any, state: Any) -> Any:
    """`target` with the arrays of a state dict.

    Raises:
        ValueError: when the state dict is of something else, or a static field, a shape or a dtype
            differs, saying where and how.
    """
    kind, where = type(target).__name__, serialization.current_path()
    children = _children(target)
    if not isinstance(state, dict) or set(state) != {*children, STATIC}:
        keys = sorted(state) if isinstance(state, dict) else type(state).__name__
        raise ValueError(f"{where}: the checkpoint has {keys} where the target has a {kind}")
    told, found = _facts(target), _decode(state[STATIC], where)
    for name in told:
        if name not in found or found[name] != told[name]:
            raise ValueError(
                f"{where}: the checkpoint's {kind} has {name}={found.get(name)!r}, the target's "
                f"{name}={told[name]!r}: restore into a {kind} that was made as the saved one was"
            )
    new = {k: _restored(child, state[k], f"{where}/{k}") for k, child in children.items()}
    return dataclasses.replace(target, **new)


def _decode(packed: Any, where: str) -> dict[str, Any]:
    try:
        found: dict[str, Any] = msgspec.msgpack.decode(
            np.asarray(packed).tobytes(), type=dict[str, Any]
        )
    except msgspec.DecodeError as error:
        raise ValueError(f"{where}/{STATIC}: these are not static fields: {error}") from error
    return found


def _restored(child: Any, state: Any, where: str) -> Any:
    new: Any = serialization.from_state_dict(child, state, name=where.rpartition("/")[2])
    if not hasattr(child, "dtype"):
        return new
    if getattr(new, "shape", None) != child.shape or new.dtype != child.dtype:
        came = f"{getattr(new, 'dtype', type(new).__name__)}{list(getattr(new, 'shape', ()))}"
        raise ValueError(
            f"{where}: the checkpoint has {came}, the target {child.dtype}{list(child.shape)}"
        )
    return jnp.asarray(new) if isinstance(child, jax.Array) else new


for _kind in KINDS:
    serialization.register_serialization_state(_kind, to_state, from_state)
