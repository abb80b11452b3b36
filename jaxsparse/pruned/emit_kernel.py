"""The kernel around generated slices: which rows and slice a warp serves, and how sums are stored.

A lane stores 16 bytes of sums where the output allows it, so that a row of a slice leaves as whole
lines; bias and activation meet the sums there.
"""

from typing import Protocol

from jaxsparse.pruned.emit_shape import LANES, CodeShape, hex_float

LOG2_E = 1.4426950408889634
GELU_SCALE, GELU_CUBIC = 1.5957691216057308, 0.044715
OUT_BYTES = {"float32": 4, "bfloat16": 2, "float16": 2}


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
        ".reg .f32 s<4>, b<4>, e; .reg .b32 o<2>;",
        *(f".reg .f32 far{part}_<4>;" for part in range(1, shape.parts)),
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
        "}",
    ]


def _finish(code: Emitted) -> list[str]:
    shape, vector = code.shape, code.vector
    stride = (shape.slice_width + 4) * 4
    out = OUT_BYTES[code.out_dtype]
    rows = LANES // shape.parts  # of each block of a cluster
    lines = [
        "shl.b32 t, slice, 2; mov.u32 u, bounds; add.u32 t, t, u;",
        "ld.const.u32 n, [t]; ld.const.u32 count, [t+4]; sub.u32 count, count, n;",
        f"mad.lo.u32 base, mate, {shape.park_bytes}, base;",
        f"mad.lo.u32 row, rank, {rows}, row; mad.lo.u32 base, rank, {rows * stride}, base;",
        f"mul.lo.u32 column, lane, {vector};",
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
    lines += _load_sums(shape.parts, vector)
    lines += [f"add.f32 s{i}, s{i}, b{i};" for i in range(vector)]
    lines += _activate(vector)
    lines += _write(code.out_dtype, vector)
    lines += [
        f"add.u64 at, at, {code.n_out * out}; add.u32 from, from, {stride}; add.u32 r, r, 1;",
        f"setp.lt.u32 q, r, {rows}; @q bra store;",
        f"add.u32 column, column, {LANES * vector}; bra columns;",
    ]
    return lines


def _load_sums(parts: int, vector: int) -> list[str]:
    # Of a row: one load, or one from each block of the cluster, added up by rank.
    registers = ["s", *(f"far{part}_" for part in range(1, parts))]
    names = [[f"{register}{i}" for i in range(vector)] for register in registers]
    kind = f".v{vector}.f32" if vector > 1 else ".f32"
    lists = [f"{{{', '.join(n)}}}" if vector > 1 else n[0] for n in names]
    if parts == 1:
        return [f"ld.shared{kind} {lists[0]}, [from];"]
    lines = []
    for part in range(parts):
        lines += [f"mapa.shared::cluster.u32 far, from, {part};"]
        lines += [f"ld.shared::cluster{kind} {lists[part]}, [far];"]
    return lines + [f"add.f32 s{i}, s{i}, {n[i]};" for n in names[1:] for i in range(vector)]


def _activate(vector: int) -> list[str]:
    # relu and relu6 let a NaN through; silu is v * sigmoid(v), gelu v * sigmoid(2u), u its cubic.
    lines = ["@plain bra write;", "@!relu bra smooth;"]
    lines += [f"max.NaN.f32 s{i}, s{i}, 0f00000000;" for i in range(vector)]
    lines += [f"@capped min.NaN.f32 s{i}, s{i}, {hex_float(6.0)};" for i in range(vector)]
    lines += ["bra write;", "smooth:"]
    for i in range(vector):
        lines += [
            f"mul.f32 e, s{i}, {hex_float(-LOG2_E)};",
            f"@gelu mul.f32 e, s{i}, s{i};",
            f"@gelu fma.rn.f32 e, e, {hex_float(GELU_CUBIC)}, {hex_float(1.0)};",
            f"@gelu mul.f32 e, e, s{i};",
            f"@gelu mul.f32 e, e, {hex_float(-GELU_SCALE * LOG2_E)};",
            f"ex2.approx.f32 e, e; add.f32 e, e, {hex_float(1.0)}; div.rn.f32 s{i}, s{i}, e;",
        ]
    return [*lines, "write:"]


def _write(out_dtype: str, vector: int) -> list[str]:
    if out_dtype == "float32":
        values = ", ".join(f"s{i}" for i in range(vector))
        return [
            f"st.global.v4.f32 [at], {{{values}}};" if vector == 4 else "st.global.f32 [at], s0;"
        ]
    kind = "bf16" if out_dtype == "bfloat16" else "f16"
    if vector == 1:
        return [f"cvt.rn.{kind}.f32 half, s0;", "st.global.b16 [at], half;"]
    return [
        f"cvt.rn.{kind}x2.f32 o0, s1, s0; cvt.rn.{kind}x2.f32 o1, s3, s2;",
        "st.global.v2.b32 [at], {o0, o1};",
    ]
