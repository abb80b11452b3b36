"""The contracts as a page: docs/contract.md."""

from contract.declaration import MOST, Array, Attribute, Contracts, Handler, Repeated

_HEAD = """# The contract of every handler

A *handler* is the C++ function behind an XLA custom call. This page says what each of them takes,
refuses and computes, for readers who change one or call it without the Python API. It is made by
`cmake/generate_contracts.py` from `contracts/*.toml`; the C++ decoders and the Python constants are
made from the same declarations. Python calls a handler through `jaxsparse/ffi/call.py`; a target
has the same operands, results and attributes on the platforms `cpu` (`cpu/ffi/`) and `CUDA`
(`cuda/ffi/`), except where a platform is named.

- An array of size 0 is absent where its row says so, whatever its other sizes.
- Shapes are expressions over named dimensions: `ceil(a, b)` is a quotient rounded up, `words(n)` is
  `ceil(n, 32)`, `two_to(n)` is 2^n, `given(x)` says that x is present. `words` hold bit-packed
  masks: little-endian, packed along the last axis.
- The type `T` (or `U`, `V`) is the same for all arrays of a call that name it.
- Workspace holds no values. The native module gives its size when a call is traced.
- A call that breaks a shape, a type, a range or a relation below is refused with an error that
  names it, before a pointer is computed or a kernel is launched. Numbers in the data (ids, sizes,
  starts, rows of a table) never lead out of bounds: what is out of range is skipped or clamped, or
  the call is refused where the CPU reads it first (the table of `bounded_network`).
- No handler allocates device memory, synchronises, or branches on device data on the host. The same
  attributes and shapes make the same launches.
- Any size may be 0 unless a relation says otherwise. Offsets into arrays are 64-bit.
- Arrays that JAX makes are aligned. CUDA handlers that load 16 bytes at once refuse others.
"""


def page(cpu: Contracts, cuda: Contracts) -> str:
    """The text of docs/contract.md."""
    names = list(dict.fromkeys([*cuda.handlers, *cpu.handlers]))
    parts = [_HEAD]
    for name in names:
        both = [c.handlers[name] for c in (cpu, cuda) if name in c.handlers]
        only = "" if name in cpu.handlers else " (CUDA)"
        parts.append(_handler(both[0], both[-1], only, cpu))
    for name, text in cuda.described.items():
        parts.append(f"## `jaxsparse_{name}` (CUDA)\n\n{text}\n")
    parts.append(_values(cpu))
    return "\n".join(parts)


def _handler(cpu: Handler, cuda: Handler, only: str, contracts: Contracts) -> str:
    lines = [
        f"## `jaxsparse_{cpu.name}`{only}",
        "",
        "| array | type | shape | |",
        "|---|---|---|---|",
    ]
    for here, there in zip(cpu.arrays, cuda.arrays, strict=True):
        lines.append(_array(here, there, here in cpu.results))
    if cpu.repeated and cuda.repeated:
        lines += _repeated(cpu.repeated, cuda.repeated)
    if cpu.types:
        lines += [
            "",
            "Types: "
            + "; ".join(
                _differs(f"`{name}` is {_kind(kind)}", f"`{name}` is {_kind(cuda.types[name])}")
                for name, kind in cpu.types.items()
            )
            + ".",
        ]
    if cpu.attributes or cuda.attributes:
        lines += ["", "| attribute | values | |", "|---|---|---|"]
        there = {a.name: a for a in cuda.attributes}
        lines += [_attribute(a, there[a.name], contracts) for a in cpu.attributes]
    relations = [f"- {'' if r in cuda.relations else 'CPU: '}`{r}`" for r in cpu.relations]
    relations += [f"- CUDA: `{r}`" for r in cuda.relations if r not in cpu.relations]
    relations += [_limit(name, cpu.limits, cuda.limits) for name in cpu.limits | cuda.limits]
    if relations:
        lines += ["", "It must hold that", "", *relations]
    return "\n".join([*lines, "", *([cpu.text, ""] if cpu.text else [])])


def _limit(name: str, here: dict[str, int], there: dict[str, int]) -> str:
    on_cpu, on_cuda = (
        f"`{name} <= {_number(m[name])}`" if name in m else "" for m in (here, there)
    )
    if on_cpu and on_cuda:
        return f"- {_differs(on_cpu, on_cuda)}"
    return f"- CUDA: {on_cuda}" if on_cuda else f"- CPU: {on_cpu}"


def _kind(kind: str) -> str:
    return " or ".join(kind.split("|"))


def _differs(here: str, there: str) -> str:
    return here if here == there else f"{here} (CUDA: {there})"


def _shape(array: Array) -> str:
    shapes = [
        f"`[{', '.join(form.dims)}]`" + (f" where `{form.when}`" if form.when else "")
        for form in array.forms
    ]
    return " or ".join(shapes) + (", or absent" if array.absent else "")


def _array(here: Array, there: Array, result: bool, more: str = "") -> str:
    name = f"`{here.name}`{' (result)' if result else ''}{more}"
    kind = _differs(_kind(here.type), _kind(there.type))
    text = "workspace" if here.workspace and not here.text else here.text
    return f"| {name} | {kind} | {_differs(_shape(here), _shape(there))} | {text} |"


def _repeated(here: Repeated, there: Repeated) -> list[str]:
    times = f", {here.least} to {here.most} times in turn"
    return [
        _array(a, b, here.of == "results", times)
        for a, b in zip(here.arrays, there.arrays, strict=True)
    ]


def _attribute(here: Attribute, there: Attribute, contracts: Contracts) -> str:
    values = _differs(_range(here, contracts), _range(there, contracts))
    return f"| `{here.name}` | {values} | {here.text} |"


def _range(attribute: Attribute, contracts: Contracts) -> str:
    if attribute.type != "i64":
        return attribute.type
    if attribute.enum:
        names = contracts.enums[attribute.enum].items()
        return ", ".join(f"{value} {name}" for name, value in names)
    ends = [_number(attribute.least), _number(attribute.most)]
    return f"{ends[0]} to {ends[1]}" if ends[1] != _number(MOST) else f"{ends[0]} or more"


def _number(value: int) -> str:
    for power in range(20, 63):
        for sign, base in (("", value), ("-", -value)):
            if base == 2**power:
                return f"{sign}2^{power}"
            if base == 2**power - 1:
                return f"2^{power} - 1"
    return str(value)


def _values(contracts: Contracts) -> str:
    lines = ["## Values and tables", ""]
    for name, values in contracts.enums.items():
        lines.append(f"- `{name}`: " + ", ".join(f"{v} {k}" for k, v in values.items()))
    for name, columns in contracts.tables.items():
        lines += ["", f"A row of `{name}`, uint32:", "", "| column | |", "|---|---|"]
        lines += [f"| `{column}` | {text} |" for column, text in columns.items()]
    return "\n".join(lines) + "\n"
