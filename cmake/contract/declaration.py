"""What `contracts/*.toml` declares, read and checked: a `Contract` a file, a `Handler` a target."""

import copy
import dataclasses
import tomllib
from pathlib import Path
from typing import Any

from contract import expressions

PLATFORMS = ("cpu", "cuda")
#: Element types: name in a contract -> xla::ffi::DataType.
ELEMENTS = {"pred": "PRED", "u8": "U8", "u16": "U16", "u32": "U32", "s32": "S32"} | {
    "f32": "F32",
    "bf16": "BF16",
    "f16": "F16",
}
SCALARS = {"i64": "int64_t", "bool": "bool", "f32": "float"}
MOST = 2**62  # of an attribute without a range of its own


@dataclasses.dataclass(frozen=True)
class Form:
    """One shape that an array may have: expressions, and the condition under which it counts."""

    dims: tuple[str, ...]
    when: str | None = None


@dataclasses.dataclass(frozen=True)
class Array:
    """An operand or a result. `absent`: size 0 stands for none. `workspace`: holds no values."""

    name: str
    type: str
    forms: tuple[Form, ...]
    absent: bool = False
    workspace: bool = False
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Attribute:
    """An attribute: of an enum, or in [least, most]; a float is any."""

    name: str
    type: str
    least: int
    most: int
    enum: str = ""
    text: str = ""


@dataclasses.dataclass(frozen=True)
class Repeated:
    """Arrays that come again and again, behind the operands or the results."""

    of: str
    arrays: tuple[Array, ...]
    least: int
    most: int


@dataclasses.dataclass(frozen=True)
class Handler:
    """The contract of one target on one platform. `relations` end with those of the platform."""

    name: str
    text: str
    types: dict[str, str]
    operands: tuple[Array, ...]
    results: tuple[Array, ...]
    attributes: tuple[Attribute, ...]
    relations: tuple[str, ...]
    limits: dict[str, int]
    repeated: Repeated | None
    sample: dict[str, list[int]]

    @property
    def dims(self) -> dict[str, Array]:
        """Name of a dimension -> the array that says what it is."""
        return bindings(self.arrays, frozenset(a.name for a in self.attributes))

    @property
    def arrays(self) -> tuple[Array, ...]:
        """Operands, then results."""
        return self.operands + self.results

    def elements(self, kind: str) -> tuple[str, ...]:
        """The element types that `kind`, "T" or "u16|s32", may stand for."""
        found: list[str] = []
        for part in kind.split("|"):
            more = (part,) if part in ELEMENTS else self.elements(self.types[part])
            found += [name for name in more if name not in found]
        return tuple(found)


@dataclasses.dataclass(frozen=True)
class Contracts:
    """All that is declared, for one platform."""

    platform: str
    handlers: dict[str, Handler]
    enums: dict[str, dict[str, int]]
    tables: dict[str, dict[str, str]]
    described: dict[str, str]  # handlers of CUDA whose arrays no list can name


def load(root: Path, platform: str) -> Contracts:
    """Read `root`/contracts/*.toml.

    Raises:
        ValueError: naming the handler that says what cannot be.
    """
    raw: dict[str, Any] = {}
    enums: dict[str, dict[str, int]] = {}
    tables: dict[str, dict[str, str]] = {}
    described: dict[str, str] = {}
    for path in sorted((root / "contracts").glob("*.toml")):
        file = tomllib.loads(path.read_text())
        enums |= file.get("enum", {})
        tables |= file.get("table", {})
        described |= {h["name"]: h["text"].strip() for h in file.get("described", [])}
        for handler in file.get("handler", []):
            raw[handler["name"]] = _inherit(handler, raw)
    handlers = {
        name: _handler(root, _on(table, platform), platform, enums)
        for name, table in raw.items()
        if platform in table.get("platforms", PLATFORMS)
    }
    return Contracts(platform, handlers, enums, tables, described)


def _inherit(table: dict[str, Any], known: dict[str, Any]) -> dict[str, Any]:
    """`like` another handler: its arrays, attributes and relations, then the own ones."""
    if "like" not in table:
        return table
    base = copy.deepcopy(known[table["like"]])
    without = table.get("without", [])
    merged = {**base, **table}
    for key in ("operands", "results", "attributes"):
        own = {row["name"]: row for row in table.get(key, [])}
        kept = {r["name"]: r for r in base.get(key, []) if r["name"] not in without}
        merged[key] = list((kept | own).values())
    merged["relations"] = base.get("relations", []) + table.get("relations", [])
    for key in ("types", "limits", "sample"):
        both = base.get(key, {}) | table.get(key, {})
        merged[key] = {k: v for k, v in both.items() if k not in without}
    return merged


def _on(table: Any, platform: str) -> Any:
    """The table with what it says of this platform in place."""
    if isinstance(table, list):
        return [_on(row, platform) for row in table]
    if not isinstance(table, dict):
        return table
    own = table.get(platform, {})
    gone = {*PLATFORMS, *(("shape", "shapes") if {"shape", "shapes"} & set(own) else ())}
    merged = {k: v for k, v in table.items() if k not in gone} | own
    return {k: _on(v, platform) for k, v in merged.items()}


def _array(row: dict[str, Any]) -> Array:
    forms = [row["shape"]] if "shape" in row else row["shapes"]
    made = [
        Form(tuple(map(str, f["dims"])), f.get("when"))
        if isinstance(f, dict)
        else Form(tuple(map(str, f)))
        for f in forms
    ]
    flags = {key: row.get(key, False) for key in ("absent", "workspace")}
    return Array(row["name"], row["type"], tuple(made), text=row.get("text", ""), **flags)


def _attribute(
    root: Path, row: dict[str, Any], platform: str, enums: dict[str, dict[str, int]]
) -> Attribute:
    kind = row.get("type", "i64")
    least, most = row.get("least", 0), row.get("most", MOST)
    if kind == "bool":
        least, most = 0, 1
    if "enum" in row:
        least, most = 0, max(enums[row["enum"]].values())
    if "variants" in row:
        table = tomllib.loads((root / platform / f"variants/{row['variants']}.toml").read_text())
        least, most = 0, len(table["variant"]) - 1
    name, enum, text = row["name"], row.get("enum", ""), row.get("text", "")
    bounds = (expressions.constant(least), expressions.constant(most))
    return Attribute(name, kind, *bounds, enum, text)


def _handler(
    root: Path, table: dict[str, Any], platform: str, enums: dict[str, dict[str, int]]
) -> Handler:
    repeated = table.get("repeated")
    handler = Handler(
        table["name"],
        table.get("text", "").strip(),
        table.get("types", {}),
        tuple(map(_array, table["operands"])),
        tuple(map(_array, table["results"])),
        tuple(_attribute(root, row, platform, enums) for row in table.get("attributes", [])),
        (*table.get("relations", []), *table.get("also", [])),
        {k: expressions.constant(v) for k, v in table.get("limits", {}).items()},
        repeated
        and Repeated(
            repeated["of"],
            tuple(map(_array, repeated["arrays"])),
            repeated["least"],
            repeated["most"],
        ),
        table.get("sample", {}),
    )
    try:
        check(handler)
    except (KeyError, ValueError) as error:
        raise ValueError(f"contract of {handler.name} on {platform}: {error}") from error
    return handler


def bindings(arrays: tuple[Array, ...], known: frozenset[str] = frozenset()) -> dict[str, Array]:
    """Name of a dimension -> the array that says what it is: the first that has it by itself, one
    that is never absent if there is any. Where that one is absent the dimension is 0.
    """
    found: dict[str, Array] = {}
    for array in sorted(arrays, key=lambda a: a.absent):
        for form in array.forms:
            for dim in form.dims:
                if expressions.is_name(dim) and dim not in known:
                    found.setdefault(dim, array)
    return found


def check(handler: Handler) -> None:
    """Every name is known, and is one thing.

    Raises:
        ValueError: naming what is not.
    """
    dims = handler.dims
    attributes = {a.name for a in handler.attributes}
    everything = [*dims, *attributes, *(a.name for a in handler.arrays)]
    twice = {name for name in everything if everything.count(name) > 1}
    if twice:
        raise ValueError(f"{', '.join(sorted(twice))} names two things")
    texts = [*handler.relations]
    for array in handler.arrays:
        handler.elements(array.type)
        for form in array.forms:
            texts += [*form.dims, *([form.when] if form.when else [])]
    unknown = set().union(*map(expressions.names, texts)) - set(dims) - attributes
    unknown |= set(handler.limits) - set(dims)
    if unknown:
        raise ValueError(f"{', '.join(sorted(unknown))} has no value")
