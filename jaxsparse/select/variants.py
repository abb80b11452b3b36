"""The variants of each op, as the build generated them from `<platform>/variants/<op>.toml`."""

import functools
import json
from importlib import resources
from typing import Any, NamedTuple


class Variant(NamedTuple):
    """One row of an op's variant table: its name, platform, the number that its handler knows it
    by, and its fields.
    """

    op: str
    platform: str
    name: str
    number: int
    fields: dict[str, Any]


@functools.cache
def table(op: str, platform: str) -> dict[str, Variant]:
    """Name -> variant, in the table's order; empty where the op has no variants on the platform."""
    file = resources.files("jaxsparse") / "select" / "variants" / platform / f"{op}_variants.json"
    if not file.is_file():
        return {}
    rows = json.loads(file.read_text())["variants"]
    return {r["name"]: Variant(op, platform, r["name"], r["number"], r) for r in rows}


OPS = ("masked_conv",)


def variants(op: str) -> list[Variant]:
    """The variants of `op` on every platform that this build has tables for.

    Raises:
        ValueError: when there is no such op.
    """
    found = [v for platform in ("cpu", "cuda") for v in table(op, platform).values()]
    if not found and op not in OPS:
        raise ValueError(f"op={op!r} is none of {', '.join(sorted({*OPS, *_with_tables()}))}")
    return found


def _with_tables() -> set[str]:
    """The ops that this build has a table for on some platform."""
    folder = resources.files("jaxsparse") / "select" / "variants"
    platforms = [p for p in folder.iterdir() if p.is_dir()] if folder.is_dir() else []
    files = [f.name for p in platforms for f in p.iterdir()]
    return {f.removesuffix("_variants.json") for f in files if f.endswith("_variants.json")}
