"""A handler's contract as a C++ header: its attributes and arrays by name, and a decoder that
checks all of it before any memory is touched.
"""

from contract import expressions
from contract.declaration import ELEMENTS, SCALARS, Array, Contracts, Form, Handler, bindings


def header(handler: Handler) -> str:
    """The text of `contracts/<handler>.gen.h`."""
    lines = [
        f"// The contract of jaxsparse_{handler.name}: made by cmake/generate_contracts.py.",
        "#pragma once",
        "",
        "#include <array>",
        "#include <cstdint>",
        "",
        '#include "contracts/call.h"',
        "",
        f"namespace jaxsparse::contract::{handler.name} {{",
        "",
        *_attributes(handler),
        *_call(handler),
        *_decode(handler),
        "",
        f"}}  // namespace jaxsparse::contract::{handler.name}",
    ]
    if handler.attributes:
        members = ", ".join(
            f'::xla::ffi::StructMember<{SCALARS[a.type]}>("{a.name}")' for a in handler.attributes
        )
        what = f"jaxsparse::contract::{handler.name}::Attributes"
        lines += ["", f"XLA_FFI_REGISTER_STRUCT_ATTR_DECODING({what}, {members});"]
    return "\n".join(lines) + "\n"


def enums(contracts: Contracts) -> str:
    """The text of `contracts/enums.gen.h`: enums and rows of tables. No FFI headers."""
    lines = [
        "// Values and table rows that both sides know: made by cmake/generate_contracts.py.",
        "#pragma once",
        "",
        "#include <cstdint>",
        "",
        "namespace jaxsparse {",
    ]
    for name, values in contracts.enums.items():
        kind = "enum class" if not name.endswith("Flag") else "enum"
        base = "int" if kind == "enum class" else "uint32_t"
        prefix = "k" if kind == "enum class" else f"k{name.removesuffix('Flag')}"
        items = ", ".join(f"{prefix}{_camel(key)} = {value}" for key, value in values.items())
        lines += ["", f"{kind} {name} : {base} {{ {items} }};"]
    for name, columns in contracts.tables.items():
        lines += ["", f"struct {name} {{"]
        lines += [f"  uint32_t {column};  // {text}" for column, text in columns.items()]
        lines += ["};", f"static_assert(sizeof({name}) == {4 * len(columns)});"]
    return "\n".join([*lines, "", "}  // namespace jaxsparse"]) + "\n"


def _camel(name: str) -> str:
    return "".join(part.capitalize() for part in name.split("_"))


def _known(handler: Handler) -> frozenset[str]:
    return frozenset(a.name for a in handler.attributes) | frozenset(handler.dims)


def _literal(value: int) -> str:
    return "INT64_MIN" if value == -(2**63) else f"INT64_C({value})"


def _attributes(handler: Handler) -> list[str]:
    members = [f"  {SCALARS[a.type]} {a.name};" for a in handler.attributes]
    return ["struct Attributes {", *members, "};", ""]


def _call(handler: Handler) -> list[str]:
    arrays = ", ".join(a.name for a in handler.arrays)
    lines = ["struct Call : Attributes {", f"  Array {arrays};"]
    dims = list(handler.dims)
    lines += [f"  int64_t {', '.join(f'{d} = 0' for d in dims)};"] if dims else []
    if handler.repeated:
        group = handler.repeated
        local = list(bindings(group.arrays, _known(handler)))
        lines += ["  struct More {", f"    Array {', '.join(a.name for a in group.arrays)};"]
        lines += [f"    int64_t {', '.join(f'{d} = 0' for d in local)};"] if local else []
        lines += ["  };", f"  std::array<More, {group.most}> more;", "  int64_t more_count = 0;"]
    values = [a.name for a in handler.results if not a.workspace]
    nothing = " && ".join(f"!{name}.given()" for name in values)
    if handler.repeated and handler.repeated.of == "results":
        nothing += "".join(f" && !more[0].{a.name}.given()" for a in handler.repeated.arrays)
    return [
        *lines,
        "  // Every result is empty: there is nothing to write.",
        f"  bool nothing() const {{ return {nothing}; }}",
        "};",
        "",
    ]


def _decode(handler: Handler) -> list[str]:
    takes = "const Attributes& attributes, " if handler.attributes else ""
    lines = [
        "inline ::xla::ffi::ErrorOr<Call> Decode(",
        f"    {takes}const ::xla::ffi::RemainingArgs& operands,",
        "    const ::xla::ffi::RemainingRets& results) {",
        "  using DataType [[maybe_unused]] = ::xla::ffi::DataType;",
        f'  Checker check("{handler.name}");',
        "  Call c = {};",
    ]
    if handler.attributes:
        lines += ["  static_cast<Attributes&>(c) = attributes;"]
    lines += [*_counts(handler), "  if (!check.ok()) return ::xla::ffi::Unexpected(check.error());"]
    for kind, what in (("operands", "Operand"), ("results", "Result")):
        for i, array in enumerate(getattr(handler, kind)):
            lines += [f'  c.{array.name} = check.{what}("{array.name}", {kind}, {i});']
    lines += _ranges(handler)
    lines += _types(handler, handler.arrays, "c", {})
    lines += _forms(handler.arrays, "c", _members(handler))
    lines += ["  if (!check.ok()) return ::xla::ffi::Unexpected(check.error());"]
    dims = handler.dims
    lines += _bind(dims, "c", _members(handler))
    for name, most in handler.limits.items():
        lines += [f'  check.Range("{name}", c.{name}, 0, INT64_C({most}));']
    lines += _sizes(handler.arrays, dims, "c", _members(handler))
    lines += _repeated(handler)
    for relation in handler.relations:
        held = expressions.to_cpp(relation, _members(handler))
        lines += [f'  check.Relation({held}, "{relation}");']
    return [
        *lines,
        "  if (!check.ok()) return ::xla::ffi::Unexpected(check.error());",
        "  return c;",
        "}",
    ]


def _members(handler: Handler, group: tuple[str, ...] = ()):
    def member(name: str) -> str:
        return f"g.{name}" if name in group else f"c.{name}"

    return member


def _counts(handler: Handler) -> list[str]:
    lines = []
    for kind in ("operands", "results"):
        least = most = len(getattr(handler, kind))
        step = 1
        if handler.repeated and handler.repeated.of == kind:
            step = len(handler.repeated.arrays)
            least, most = (
                least + step * n for n in (handler.repeated.least, handler.repeated.most)
            )
        lines += [f'  check.Count("{kind}", {kind}.size(), {least}, {most}, {step});']
    return lines


def _ranges(handler: Handler) -> list[str]:
    return [
        f'  check.Range("{a.name}", c.{a.name}, {_literal(a.least)}, {_literal(a.most)});'
        for a in handler.attributes
        if a.type == "i64" and (a.least, a.most) != (-(2**63), 2**63 - 1)
    ]


def _types(
    handler: Handler, arrays: tuple[Array, ...], at: str, first: dict[str, str]
) -> list[str]:
    """The element types. The first array whose type is a variable, and which is never absent, says
    what the variable stands for; `first` holds the name of that array.
    """
    lines = []
    for array in sorted(arrays, key=lambda a: a.absent):
        allowed = array.type.split("|")
        if array.type in handler.types and array.type not in first and not array.absent:
            allowed = handler.types[array.type].split("|")
            first[array.type] = f"c.{array.name}"
        values: list[str] = []
        said: list[str] = []
        for part in allowed:
            if part in first and first[part] != f"c.{array.name}":
                values.append(f"{first[part]}.type")
                said.append(f"of the type of {first[part][2:]}")
            else:
                elements = (part,) if part in ELEMENTS else handler.elements(part)
                values += [f"DataType::{ELEMENTS[e]}" for e in elements]
                said += elements
        line = (
            f'check.Type("{array.name}", {at}.{array.name}, {{{", ".join(values)}}}, '
            f'"{" or ".join(said)}");'
        )
        lines += [f"  if ({at}.{array.name}.given()) {line}" if array.absent else f"  {line}"]
    return lines


def _forms(arrays: tuple[Array, ...], at: str, member) -> list[str]:
    """Which of its shapes each array has, by its rank and the condition."""
    lines = []
    for array in arrays:
        name = f"{at}.{array.name}"
        opened = f"  if ({name}.given()) {{" if array.absent else "  {"
        lines.append(opened)
        for i, form in enumerate(array.forms):
            test = f"{name}.form < 0 && {name}.rank == {len(form.dims)}"
            if form.when:
                test += f" && {expressions.to_cpp(form.when, member)}"
            lines.append(f"    if ({test}) {name}.form = {i};")
        shapes = " or ".join(_said(form) for form in array.forms)
        lines.append(f'    if ({name}.form < 0) check.Fail("{array.name} must be {shapes}");')
        lines.append("  }")
    return lines


def _said(form: Form) -> str:
    return f"[{', '.join(form.dims)}]"


def _bind(dims: dict[str, Array], at: str, member) -> list[str]:
    lines = []
    for dim, array in dims.items():
        place = f"{at}.{array.name}"
        for i, form in enumerate(array.forms):
            if dim in form.dims:
                value = f"{place}.dims[{form.dims.index(dim)}]"
                lines.append(f"  if ({place}.form == {i}) {member(dim)} = {value};")
    return lines


def _sizes(arrays: tuple[Array, ...], dims: dict[str, Array], at: str, member) -> list[str]:
    lines = []
    for array in arrays:
        for i, form in enumerate(array.forms):
            place = f"{at}.{array.name}"
            for axis, dim in enumerate(form.dims):
                if dims.get(dim) is array and form.dims.index(dim) == axis:
                    continue  # it is what says so
                wanted = expressions.to_cpp(dim, member)
                call = f'check.Size("{array.name}", {place}, {axis}, {wanted}, "{dim}");'
                lines.append(f"  if ({place}.form == {i}) {call}")
    return lines


def _repeated(handler: Handler) -> list[str]:
    group = handler.repeated
    if group is None:
        return []
    known = _known(handler)
    local = bindings(group.arrays, known)
    member = _members(handler, (*local, *(a.name for a in group.arrays)))
    before, step = len(getattr(handler, group.of)), len(group.arrays)
    what = {"operands": "Operand", "results": "Result"}[group.of]
    first = {
        a.type: f"c.{a.name}"
        for a in reversed(handler.arrays)
        if a.type in handler.types and not a.absent
    }
    body = [
        f'  g.{a.name} = check.{what}("{a.name}", {group.of}, {before} + {step} * i + {j});'
        for j, a in enumerate(group.arrays)
    ]
    body += _types(handler, group.arrays, "g", first)
    body += _forms(group.arrays, "g", member)
    body += ["  if (!check.ok()) return ::xla::ffi::Unexpected(check.error());"]
    body += _bind(local, "g", member)
    body += _sizes(group.arrays, local, "g", member)
    return [
        f"  c.more_count = static_cast<int64_t>({group.of}.size() - {before}) / {step};",
        "  for (int64_t i = 0; i < c.more_count; ++i) {",
        "    Call::More& g = c.more[i];",
        *(f"  {line}" for line in body),
        "  }",
    ]
