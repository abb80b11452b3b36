"""The package's pytrees in the signature of an exported function: what is static of them, as bytes.

`jax.export` asks for it where an argument or a result is one of them. Importing the package
registers them, where a function is exported as where it is loaded. Nothing that is read is ever
executed, and bytes that do not hold such facts are refused.
"""

from typing import Any

import msgspec
import numpy as np
from jax import export

from jaxsparse.bounded.activations import Activations
from jaxsparse.bounded.layer import Layer
from jaxsparse.bounded.packed import Network
from jaxsparse.core.types import Kind
from jaxsparse.index.blocks import BlockMask
from jaxsparse.index.blocks.formats import BlockLists
from jaxsparse.index.chosen import ChosenIndex
from jaxsparse.index.experts import Routing, TopExperts
from jaxsparse.index.kept_blocks import KeptBlocks
from jaxsparse.index.mask_index import MaskIndex
from jaxsparse.index.packing import TokenPacking
from jaxsparse.index.portfolio import Portfolio
from jaxsparse.index.types import TileIndex
from jaxsparse.pruned.files import check_plan
from jaxsparse.pruned.pattern import Pattern
from jaxsparse.pruned.plan import Plan, Tuned
from jaxsparse.pruned.weight import PrunedWeight
from jaxsparse.recorder import Recorder
from jaxsparse.select.costs import Candidate

Pair = tuple[int, int]
_INDEX = tuple[Pair, tuple[int, int, int], int, str]
_CHOSEN = tuple[Pair, tuple[int, int, int], int, str, tuple[Candidate, ...]]
_LAYER = tuple[int, int, float, bool, float]
_SHAPES = tuple[tuple[int, int, int, int], ...]
_NAMES = str | tuple[str, ...] | None
_NETWORK = tuple[int, int, int, int, int, float, bool, int, _SHAPES, _NAMES]
#: Type -> the types of its static fields, in the order in which the pytree has them.
_FACTS: dict[type, Any] = {
    Activations: tuple[()],
    BlockMask: tuple[Pair, int, int],
    ChosenIndex: _CHOSEN,
    KeptBlocks: tuple[Pair, Pair],
    Layer: _LAYER,
    MaskIndex: _INDEX,
    Network: _NETWORK,
    Recorder: tuple[int, float, bool],
    TileIndex: _INDEX,
    TokenPacking: tuple[Pair],
}
_TUPLES = (BlockLists, Portfolio, Routing, TopExperts)


class _PlanFacts(msgspec.Struct, forbid_unknown_fields=True):
    """A `Plan` with its pattern's arrays as little-endian int32."""

    kind: Kind
    n_in: int
    n_out: int
    window: Pair | None
    groups: int
    indptr: bytes
    indices: bytes
    tuned: tuple[Tuned, ...]


def _register(kind: type, facts: Any) -> None:
    """A dataclass whose static fields are a tuple of the type `facts`."""
    decoder = msgspec.msgpack.Decoder(facts)

    def read(data: bytes) -> Any:
        try:
            return decoder.decode(data)
        except msgspec.DecodeError as error:
            raise ValueError(f"not the static fields of a {kind.__name__}: {error}") from error

    export.register_pytree_node_serialization(
        kind,
        serialized_name=f"jaxsparse.{kind.__name__}",
        serialize_auxdata=msgspec.msgpack.encode,
        deserialize_auxdata=read,
    )


def write_plan(facts: tuple[Plan]) -> bytes:
    """The plan of a `PrunedWeight`, without its values."""
    (plan,) = facts
    p = plan.pattern
    starts, indices = (np.asarray(a, "<i4").tobytes() for a in (p.indptr, p.indices))
    return msgspec.msgpack.encode(
        _PlanFacts(plan.kind, p.n_in, p.n_out, p.window, p.groups, starts, indices, plan.tuned)
    )


def read_plan(data: bytes) -> tuple[Plan]:
    """What `write_plan` wrote.

    Raises:
        ValueError: when it is not such a plan, saying what is wrong.
    """
    try:
        found = msgspec.msgpack.decode(data, type=_PlanFacts)
    except msgspec.DecodeError as error:
        raise ValueError(f"not the plan of a PrunedWeight: {error}") from error
    starts, indices = (np.frombuffer(part, "<i4") for part in (found.indptr, found.indices))
    pattern = Pattern(found.n_in, found.n_out, starts, indices, found.window, found.groups)
    plan = Plan(pattern, found.kind, found.tuned)
    check_plan(plan)
    return (plan,)


for _kind, _facts in _FACTS.items():
    _register(_kind, _facts)
export.register_pytree_node_serialization(
    PrunedWeight,
    serialized_name="jaxsparse.PrunedWeight",
    serialize_auxdata=write_plan,
    deserialize_auxdata=read_plan,
)
for _tuple in _TUPLES:
    export.register_namedtuple_serialization(_tuple, serialized_name=f"jaxsparse.{_tuple.__name__}")
