"""The variants of each op, as the build generated them from `<platform>/variants/<op>.toml`."""

import functools
import json
from importlib import resources
from typing import Any, NamedTuple

#: What has variants on some platform.
OPS = (
    "masked_conv",
    "masked_conv_dkernel",
    "masked_matmul",
    "grouped_matmul",
    "pruned_matmul",
    "pruned_conv",
)


#: op -> the tables that hold more of its variants, after its own.
_MORE = {"masked_conv": ("masked_conv_mma",)}


class Variant(NamedTuple):
    """One way to run an op: its name, platform, the number that its handler knows it by (-1 where
    it is no row of a handler's table) and the fields of its row.
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
    """Let `variants(op)` list names that are no rows of a table: the dense operation, executors."""
    _BESIDE.setdefault(op, []).extend((platform, name) for name in names)


def variants(op: str) -> list[Variant]:
    """The variants of `op`, on every platform that this build has kernels for: each is one that
    `js.config(variant=)` takes, except those of "masked_conv_dkernel" (the gradient of a
    convolution's kernel), which a rule chooses and which are CUDA's only.

    Args:
        op: "masked_conv", "masked_conv_dkernel", "masked_matmul", "grouped_matmul",
            "pruned_matmul" or "pruned_conv".

    Raises:
        ValueError: when there is no such op.
    """
    rows = [v for platform in ("cpu", "cuda") for v in table(op, platform).values()]
    built = {p for p in ("cpu", "cuda") if (_folder() / p).is_dir()}
    beside = [Variant(op, p, name, -1, {}) for p, name in _BESIDE.get(op, ()) if p in built]
    if op not in OPS:
        raise ValueError(f"op={op!r} is none of {', '.join(sorted(OPS))}")
    return rows + beside


def _folder() -> Any:
    """Where the build puts its tables, a folder a platform."""
    return resources.files("jaxsparse") / "select" / "variants"
