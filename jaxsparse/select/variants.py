"""The variants of each op, as the build generated them from `<platform>/variants/<op>.toml`."""

import functools
import importlib
import json
from importlib import resources
from typing import Any, Literal, NamedTuple, get_args

#: What has variants on some platform.
Op = Literal[
    "masked_conv",
    "masked_conv_dkernel",
    "masked_conv_stack",
    "masked_dense",
    "masked_matmul",
    "kept_matmul",
    "grouped_matmul",
    "grouped_gated",
    "pruned_matmul",
    "pruned_conv",
    "bounded_matmul",
    "bounded_network",
    "sparse_attention",
    "sparse_ffn",
]
OPS: tuple[Op, ...] = get_args(Op)

#: What has one way on each platform.
Single = Literal[
    "affected_index",
    "combine",
    "dispatch",
    "masked_norm",
    "masked_pool",
    "pack_mask",
    "pack_tokens",
    "ring_attention",
    "route",
    "tile_index",
    "token_index",
    "top_experts",
    "unpack_mask",
    "unpack_tokens",
]
SINGLE: tuple[Single, ...] = get_args(Single)

#: An op that runs as another -> that other.
_RUNS_AS = {"kept_matmul": "masked_matmul", "masked_dense": "masked_conv"}


#: op -> the tables that hold more of its variants, after its own.
_MORE = {"masked_conv": ("masked_conv_mma",)}


class Variant(NamedTuple):
    """One way to run an op: its name, platform, the number that its handler knows it by (-1 where
    it is not a row of a handler's table) and the fields of its row.
    """

    op: str
    platform: str
    name: str
    number: int
    fields: dict[str, Any]


@functools.cache
def table(op: str, platform: str) -> dict[str, Variant]:
    """Name -> variant, in the tables' order; empty where the op has no variants on the platform."""
    files = [_folder() / platform / f"{name}_variants.json" for name in (op, *_MORE.get(op, ()))]
    rows = [r for f in files if f.is_file() for r in json.loads(f.read_text())["variants"]]
    return {r["name"]: Variant(op, platform, r["name"], r["number"], r) for r in rows}


#: op -> (platform, name) of what runs it beside the rows of its tables.
_BESIDE: dict[str, list[tuple[str, str]]] = {}


def also_runs(op: str, platform: str, *names: str) -> None:
    """Let `variants(op)` list names that are not in a table: the dense operation, executors."""
    _BESIDE.setdefault(op, []).extend((platform, name) for name in names)


def _beside() -> dict[str, list[tuple[str, str]]]:
    """What `also_runs` was told. Operations tell it when they are imported, which `import
    jaxsparse` leaves to their first use.
    """
    importlib.import_module("jaxsparse.ops")
    return _BESIDE


def variants(op: Op | Single) -> list[Variant]:
    """The variants of `op`, on every platform that this build has kernels for; none for an op with
    a single kernel on each platform. "ring_attention" runs those of "sparse_attention".

    `js.config(variant=)` takes each of them. A name alone concerns "masked_conv", "masked_dense",
    "masked_matmul", "kept_matmul", "grouped_matmul", "pruned_matmul", "pruned_conv",
    "sparse_attention" and "sparse_ffn"; for the other ops pass the Variant itself.

    Args:
        op: the name of an op, as `js.explain` reports it; "masked_conv_dkernel" is the gradient of
            a convolution's kernel, whose variants are CUDA's only.

    Raises:
        ValueError: when there is not an op of that name.
    """
    if op not in (*OPS, *SINGLE):
        name = getattr(op, "__name__", None)
        if name in (*OPS, *SINGLE):
            raise ValueError(f"op is the function {name}; it takes the name: js.variants({name!r})")
        raise ValueError(f"op={op!r} is not one of {', '.join(sorted((*OPS, *SINGLE)))}")
    runs = _RUNS_AS.get(op, op)
    rows = [v for platform in ("cpu", "cuda") for v in table(runs, platform).values()]
    built = {p for p in ("cpu", "cuda") if (_folder() / p).is_dir()}
    beside = [Variant(op, p, name, -1, {}) for p, name in _beside().get(runs, ()) if p in built]
    return [v._replace(op=op) for v in rows] + beside


def is_known(name: str) -> bool:
    """Whether some op has a variant of that name: in this build's tables, or beside them."""
    if any(name in table(op, platform) for op in OPS for platform in ("cpu", "cuda")):
        return True
    return any(name == other for rows in _beside().values() for _, other in rows)


def _folder() -> Any:
    """Where the build puts its tables, a folder a platform."""
    return resources.files("jaxsparse") / "select" / "variants"
