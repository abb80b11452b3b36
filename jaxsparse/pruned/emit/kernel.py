"""The kernel around generated slices: which rows and slice a warp serves, and how sums are stored.

A lane stores 16 bytes of sums where the output allows it, so that a row of a slice leaves as whole
lines, and loads the sums of several rows before it stores the first; bias and activation meet the
sums there.
"""

from typing import Protocol

from jaxsparse.core.dtypes import BYTES
from jaxsparse.pruned.emit.shape import LANES, CodeShape, hex_float

LOG2_E = 1.4426950408889634
GELU_SCALE, GELU_CUBIC = 1.5957691216057308, 0.044715


class Emitted(Protocol):
    """What the kernel needs to know of the code around it."""

    n_out: int
    n_in: int
    element: int
    vector: int
    out_dtype: str
    shape: CodeShape
    hopper: bool


def kernel_head(code: Emitted, slices: int) -> list[str]:
    """The entry `pruned(x, y, bias, rows, panel, activation)` up to the slices. `panel` blocks of
    rows share a pass over the slices.
    """
    return [*_place(code, slices // code.shape.mates), *_registers(code), *_branch(code, slices)]


def _place(code: Emitted, slices: int) -> list[str]:
    shape = code.shape
    row_bytes = code.n_in * code.element
    sums = code.vector * _rows_at_once(code)[2]
    return [
        ".visible .entry pruned(.param .u64 p_x, .param .u64 p_y, .param .u64 p_bias,",
        "                       .param .u32 p_rows, .param .u32 p_panel,",
        "                       .param .u32 p_activation)",
        f".maxntid {shape.threads}, 1, 1",
        *([f".explicitcluster .reqnctapercluster {shape.parts}, 1, 1"] if shape.parts > 1 else []),
        "{",
        # The next module of the product may begin: it needs nothing of this one.
        *(["griddepcontrol.launch_dependents;"] if code.hopper else []),
        ".reg .u64 x, y, bias, source, at, wide; .reg .pred p, q;",
        ".reg .u32 rows, panel, block, blocks, slice, tile, mate, lane, row, base, to, t, u, id;",
        ".reg .u32 n, count, column, r, from, barrier, rank, far;",
        f".reg .f32 s<{sums}>, b<4>, e; .reg .b32 o<2>;",
        *(f".reg .f32 far{part}_<{sums}>;" for part in range(1, shape.parts)),
        ".reg .b16 half; .reg .u32 activation; .reg .pred biased, plain, relu, capped, gelu;",
        "ld.param.u64 x, [p_x]; ld.param.u64 y, [p_y]; ld.param.u64 bias, [p_bias];",
        "setp.ne.u64 biased, bias, 0; ld.param.u32 activation, [p_activation];",
        *(
            f"setp.{test}.u32 {name}, activation, {number};"
            for name, test, number in (
                ("plain", "eq", 0),
                ("relu", "le", 2),
                ("capped", "eq", 2),
                ("gelu", "eq", 4),
            )
        ),
        "cvta.to.global.u64 x, x; cvta.to.global.u64 y, y; cvta.to.global.u64 bias, bias;",
        "ld.param.u32 rows, [p_rows]; ld.param.u32 panel, [p_panel];",
        f"add.u32 blocks, rows, {LANES * shape.row_tiles - 1};",
        f"div.u32 blocks, blocks, {LANES * shape.row_tiles};",
        "mov.u32 block, %ctaid.x; mov.u32 rank, 0;",
        *(["mov.u32 rank, %cluster_ctarank;"] if shape.parts > 1 else []),
        f"shr.u32 block, block, {shape.parts.bit_length() - 1};",
        f"mul.lo.u32 t, panel, {slices}; div.u32 u, block, t;",
        "mul.lo.u32 t, u, t; sub.u32 block, block, t; mul.lo.u32 u, u, panel;",
        "sub.u32 t, blocks, u; min.u32 panel, panel, t;",
        "div.u32 slice, block, panel; mul.lo.u32 t, slice, panel; sub.u32 block, block, t;",
        "add.u32 block, block, u;",
        "mov.u32 t, %tid.x; and.b32 lane, t, 31; shr.u32 t, t, 5;",
        f"div.u32 tile, t, {shape.mates}; mul.lo.u32 u, tile, {shape.mates}; sub.u32 mate, t, u;",
        f"mad.lo.u32 slice, slice, {shape.mates}, mate; add.u32 barrier, tile, 1;",
        f"mov.u32 base, memory; mad.lo.u32 base, tile, {shape.tile_bytes}, base;",
        # The last tile is moved up to end with the last row: its overlap is stored twice, equal.
        f"mad.lo.u32 row, block, {shape.row_tiles}, tile; shl.b32 row, row, 5;",
        # Warps of a cluster stay to the end.
        *(["setp.ge.u32 p, row, rows; @p ret;"] if shape.parts == 1 else []),
        "sub.u32 t, rows, 32; min.u32 row, row, t;",
        # This lane's piece of the first row that the mate loads: where from, where to.
        f"shr.u32 t, lane, 3; mad.lo.u32 t, mate, {LANES // shape.mates}, t; add.u32 u, row, t;",
        f"mul.wide.u32 wide, u, {row_bytes}; add.u64 source, x, wide;",
        "and.b32 u, lane, 7; shl.b32 id, u, 4; cvt.u64.u32 wide, id; add.u64 source, source, wide;",
        "and.b32 id, t, 7; xor.b32 u, u, id; shl.b32 u, u, 4; shl.b32 t, t, 7;",
        "add.u32 to, base, t; add.u32 to, to, u;",
    ]


def _registers(code: Emitted) -> list[str]:
    width = code.shape.slice_width
    lines = [
        f".reg .f32 a<{width}>, f<8>; .reg .b32 x<8>, from<8>; .reg .pred valid; .reg .b16 h<8>;",
        ".reg .u32 piece, low, high, park; and.b32 piece, lane, 7; shl.b32 t, piece, 4;",
        "shl.b32 u, lane, 7; add.u32 u, u, base; add.u32 u, u, t;",
        # A row's piece q lies at row * 128 + ((q ^ (row & 7)) << 4).
        *(f"xor.b32 from{q}, u, {q * 16};" for q in range(8)),
        "mov.u32 low, to; xor.b32 high, to, 64;",
        f"mad.lo.u32 park, mate, {code.shape.park_bytes}, base;",
        f"mad.lo.u32 park, lane, {(width + 4) * 4}, park;",
    ]
    return lines


def _branch(code: Emitted, slices: int) -> list[str]:
    if code.shape.parts == 1:
        return [*(f"setp.eq.u32 p, slice, {i}; @p bra slice{i};" for i in range(slices)), "ret;"]
    units = [f"slice{i}part{part}" for i in range(slices) for part in range(code.shape.parts)]
    tests = [f"setp.eq.u32 p, id, {i}; @p bra {unit};" for i, unit in enumerate(units)]
    return [f"mad.lo.u32 id, slice, {code.shape.parts}, rank;", *tests, "ret;"]


def meet(code: Emitted) -> list[str]:
    """The warps of a row tile meet."""
    if code.shape.mates == 1:
        return ["bar.warp.sync 0xffffffff;"]
    return [f"bar.sync barrier, {LANES * code.shape.mates};"]


# Aligned: all lanes of a warp arrive together, also where they left a loop one by one.
_MEET_CLUSTER = (
    "bar.warp.sync 0xffffffff; "
    "barrier.cluster.arrive.release.aligned; barrier.cluster.wait.acquire.aligned;"
)


def kernel_tail(code: Emitted) -> list[str]:
    """From the slices' sums in shared memory to the result."""
    return [
        "summed:",
        _MEET_CLUSTER if code.shape.parts > 1 else "bar.warp.sync 0xffffffff;",
        *_finish(code),
        "done:",
        # Others may still read this block's sums; modules before this one may still run.
        *([_MEET_CLUSTER] if code.shape.parts > 1 else []),
        *(["griddepcontrol.wait;"] if code.hopper else []),
        "ret;",
        *_activate(code),
        "}",
    ]


def _rows_at_once(code: Emitted) -> tuple[int, int, int]:
    """How a warp stores its rows: lanes of a row, rows side by side, rows under way of a lane."""
    shape, vector = code.shape, code.vector
    lanes = 1
    while lanes < LANES and lanes * vector < shape.slice_width:
        lanes *= 2
    rows = LANES // shape.parts  # of each block of a cluster
    side = min(LANES // lanes, rows)
    return lanes, side, min(4, rows // side, 64 // (vector * shape.parts))


def _finish(code: Emitted) -> list[str]:
    shape, vector = code.shape, code.vector
    stride = (shape.slice_width + 4) * 4
    out = BYTES[code.out_dtype]
    rows = LANES // shape.parts
    lanes, side, turns = _rows_at_once(code)
    lines = [
        "shl.b32 t, slice, 2; mov.u32 u, bounds; add.u32 t, t, u;",
        "ld.const.u32 n, [t]; ld.const.u32 count, [t+4]; sub.u32 count, count, n;",
        f"mad.lo.u32 base, mate, {shape.park_bytes}, base;",
        f"mad.lo.u32 row, rank, {rows}, row; mad.lo.u32 base, rank, {rows * stride}, base;",
        f"shr.u32 r, lane, {lanes.bit_length() - 1}; setp.ge.u32 p, r, {side}; @p bra done;",
        f"add.u32 row, row, r; mad.lo.u32 base, r, {stride}, base;",
        f"and.b32 column, lane, {lanes - 1}; mul.lo.u32 column, column, {vector};",
        "columns: setp.ge.u32 p, column, count; @p bra done;",
        "add.u32 t, n, column;",
        f"mul.wide.u32 wide, row, {code.n_out * out}; add.u64 at, y, wide;",
        f"mul.wide.u32 wide, t, {out}; add.u64 at, at, wide;",
        "shl.b32 u, column, 2; add.u32 from, base, u; mov.u32 r, 0;",
    ]
    lines.append("mul.wide.u32 wide, t, 4; add.u64 wide, bias, wide;")
    lines += [f"mov.f32 b{i}, 0f00000000;" for i in range(vector)]
    lines += [f"@biased ld.global.nc.f32 b{i}, [wide+{i * 4}];" for i in range(vector)]
    lines.append("store:")
    for part in range(shape.parts):
        lines += _load_sums(part, shape.parts, vector, turns, side * stride)
    for turn in range(turns):
        sums = [f"s{turn * vector + i}" for i in range(vector)]
        lines += [
            f"add.f32 {sum_}, {sum_}, far{part}_{turn * vector + i};"
            for part in range(1, shape.parts)
            for i, sum_ in enumerate(sums)
        ]
        lines += [f"add.f32 {sum_}, {sum_}, b{i};" for i, sum_ in enumerate(sums)]
    lines += ["@!plain bra activate;", "write:"]
    for turn in range(turns):
        lines += _write(code.out_dtype, [f"s{turn * vector + i}" for i in range(vector)])
        lines.append(f"add.u64 at, at, {code.n_out * out * side};")
    lines += [
        f"add.u32 from, from, {stride * side * turns}; add.u32 r, r, {side * turns};",
        f"setp.lt.u32 q, r, {rows}; @q bra store;",
        f"add.u32 column, column, {lanes * vector}; bra columns;",
    ]
    return lines


def _load_sums(part: int, parts: int, vector: int, turns: int, step: int) -> list[str]:
    # A block's sums of the rows under way; they are added up by rank.
    kind = f".v{vector}.f32" if vector > 1 else ".f32"
    register, lines = "s" if part == 0 else f"far{part}_", []
    place, address = "shared", "from"
    if parts > 1:
        lines.append(f"mapa.shared::cluster.u32 far, from, {part};")
        place, address = "shared::cluster", "far"
    for turn in range(turns):
        names = ", ".join(f"{register}{turn * vector + i}" for i in range(vector))
        given = f"{{{names}}}" if vector > 1 else names
        lines.append(f"ld.{place}{kind} {given}, [{address}+{turn * step}];")
    return lines


def _activate(code: Emitted) -> list[str]:
    # Behind the kernel's end, so that a product without it fetches none of it. relu and relu6 let a
    # NaN through; silu is v * sigmoid(v), gelu v * sigmoid(2u), u its cubic.
    sums = [f"s{i}" for i in range(code.vector * _rows_at_once(code)[2])]
    lines = ["activate:", "@!relu bra smooth;"]
    lines += [f"max.NaN.f32 {s}, {s}, 0f00000000;" for s in sums]
    lines += [f"@capped min.NaN.f32 {s}, {s}, {hex_float(6.0)};" for s in sums]
    lines += ["bra write;", "smooth:"]
    for s in sums:
        lines += [
            f"mul.f32 e, {s}, {hex_float(-LOG2_E)};",
            f"@gelu mul.f32 e, {s}, {s};",
            f"@gelu fma.rn.f32 e, e, {hex_float(GELU_CUBIC)}, {hex_float(1.0)};",
            f"@gelu mul.f32 e, e, {s};",
            f"@gelu mul.f32 e, e, {hex_float(-GELU_SCALE * LOG2_E)};",
            f"ex2.approx.f32 e, e; add.f32 e, e, {hex_float(1.0)}; div.rn.f32 {s}, {s}, e;",
        ]
    return [*lines, "bra write;"]


def _write(out_dtype: str, sums: list[str]) -> list[str]:
    if out_dtype == "float32":
        values = ", ".join(sums)
        return [
            f"st.global.v4.f32 [at], {{{values}}};"
            if len(sums) == 4
            else f"st.global.f32 [at], {sums[0]};"
        ]
    kind = "bf16" if out_dtype == "bfloat16" else "f16"
    if len(sums) == 1:
        return [f"cvt.rn.{kind}.f32 half, {sums[0]};", "st.global.b16 [at], half;"]
    return [
        f"cvt.rn.{kind}x2.f32 o0, {sums[1]}, {sums[0]};",
        f"cvt.rn.{kind}x2.f32 o1, {sums[3]}, {sums[2]};",
        "st.global.v2.b32 [at], {o0, o1};",
    ]
