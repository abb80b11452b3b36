"""Generated code: read back, it multiplies with the weight and nothing else; and it assembles."""

import itertools
import re
import shutil
import struct
import subprocess

import numpy as np
import pytest

from jaxsparse.pruned.emit.emitter import Emitter, split_evenly
from jaxsparse.pruned.emit.shape import STAGE_BYTES, CodeShape, hex_float

LOAD = re.compile(r"ld\.shared\.v4\.b32 \{x0, x1, x2, x3\}, \[from(\d)\+(\d+)\];")
FUSED = re.compile(r"fma\.rn\.f32 a(\d+), f(\d), 0f([0-9A-F]{8}), a\d+;")


def weight(rng, n, k, sparsity):
    kept = rng.random((n, k)) >= sparsity
    indptr = np.concatenate([[0], np.cumsum(kept.sum(1))]).astype(np.int32)
    values = rng.standard_normal(kept.sum()).astype(np.float32)
    dense = np.zeros((n, k), np.float32)
    dense[kept] = values
    return dense, (indptr, np.nonzero(kept)[1].astype(np.int32), values, k)


def read_back(emitter, text):
    """The matrix that the slices multiply with: loads say which inputs, products which outputs."""
    dense = np.zeros((emitter.n_out, emitter.n_in), np.float32)
    bodies = re.split(r"^slice(\d+)(?:part(\d+))?:$", text, flags=re.MULTILINE)[1:]
    for number, part, body in zip(bodies[::3], bodies[1::3], bodies[2::3], strict=True):
        first, waits, piece = emitter.cuts[int(number)], 0, 0
        chunks = emitter.part_chunks[int(part or 0)]
        for line in body.split("summed:")[0].splitlines():
            if "wait_group" in line:
                waits += 1
            elif found := LOAD.match(line):
                assert int(found[2]) == (waits - 1) % 3 * STAGE_BYTES
                piece = int(chunks[waits - 1]) * emitter.chunk
                piece += int(found[1]) * emitter.piece
            elif found := FUSED.match(line):
                (value,) = struct.unpack(">f", bytes.fromhex(found[3]))
                dense[first + int(found[1]), piece + int(found[2])] += value
    return dense


@pytest.mark.parametrize(
    ("n", "k", "sparsity"),
    [(64, 256, 0.9), (100, 132, 0.8), (7, 4, 0.5), (30, 64, 1.0), (64, 64, 0.0), (1, 8, 0.0)],
)
@pytest.mark.parametrize("shape", [(64, 1, 4), (32, 2, 2), (16, 4, 4), (8, 8, 1)])
@pytest.mark.parametrize("dtype", ["float32", "bfloat16"])
def test_read_back_it_is_the_weight(rng, n, k, sparsity, shape, dtype):
    if k % 8 and dtype != "float32":
        pytest.skip("rows are not a multiple of 16 bytes")
    dense, arguments = weight(rng, n, k, sparsity)
    emitter = Emitter(*arguments, dtype=dtype, shape=CodeShape(*shape))
    code = emitter.module()
    np.testing.assert_array_equal(read_back(emitter, code.ptx.decode()), dense)
    assert code.fused == np.count_nonzero(dense)
    assert code.slices % shape[1] == 0
    assert np.diff(emitter.cuts).max() <= shape[0]


@pytest.mark.parametrize(("n", "k", "sparsity"), [(64, 256, 0.9), (100, 132, 0.8), (30, 64, 1.0)])
@pytest.mark.parametrize("parts", [2, 4, 8])
def test_parts_share_the_inputs(rng, n, k, sparsity, parts):
    dense, arguments = weight(rng, n, k, sparsity)
    emitter = Emitter(*arguments, shape=CodeShape(32, 2, 4, parts), hopper=True)
    code = emitter.module()
    np.testing.assert_array_equal(read_back(emitter, code.ptx.decode()), dense)
    assert code.fused == np.count_nonzero(dense)
    assert [len(c) for c in emitter.part_chunks].count(0) == max(0, parts - len(emitter.chunks))
    np.testing.assert_array_equal(np.concatenate(emitter.part_chunks), emitter.chunks)
    with pytest.raises(ValueError, match=f"parts={parts}"):
        Emitter(*arguments, shape=CodeShape(32, 2, 4, parts))


@pytest.mark.parametrize("most", [1, 300, 10_000])
def test_modules_share_the_slices(rng, most):
    dense, arguments = weight(rng, 100, 132, 0.8)
    emitter = Emitter(*arguments, shape=CodeShape(8, 2, 4))
    codes, cuts = emitter.modules(most), emitter.cuts
    total, first = np.zeros_like(dense), 0
    for code in codes:
        assert code.slices % 2 == 0
        emitter.cuts = cuts[first : first + code.slices + 1]
        part = read_back(emitter, code.ptx.decode())
        assert code.fused == np.count_nonzero(part)
        total, first = total + part, first + code.slices
    assert first == len(cuts) - 1
    np.testing.assert_array_equal(total, dense)
    assert len(codes) == min(first // 2, -(-np.count_nonzero(dense) // most))


def test_the_digest_names_the_text(rng):
    _, arguments = weight(rng, 16, 32, 0.5)
    one, same = Emitter(*arguments).module(), Emitter(*arguments).module()
    assert one == same
    arguments[2][0] += 1
    assert Emitter(*arguments).module().digest != one.digest
    assert 0 <= one.digest < 2**63


def test_rows_must_be_whole_pieces(rng):
    _, arguments = weight(rng, 4, 6, 0.5)
    with pytest.raises(ValueError, match="n_in=6"):
        Emitter(*arguments)


@pytest.mark.parametrize("value", [0.1, -1e-40, 3.4e38, float("inf")])
def test_immediates_are_exact(value):
    (back,) = struct.unpack(">f", bytes.fromhex(hex_float(value)[2:]))
    assert np.float32(value) == np.float32(back)


def test_runs_are_balanced_and_bounded(rng):
    work = rng.integers(0, 50, 200)
    cuts = split_evenly(work, 8, 32, 4)
    assert cuts[0] == 0
    assert cuts[-1] == 200
    assert max(np.diff(cuts)) <= 32
    assert all(c % 4 == 0 for c in cuts)
    parts = [work[a:b].sum() for a, b in itertools.pairwise(cuts)]
    assert max(parts) <= 1.3 * np.mean(parts)


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas")
@pytest.mark.parametrize("out_dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize(("n", "dtype"), [(36, "float32"), (35, "bfloat16"), (36, "float16")])
def test_it_assembles(rng, tmp_path, n, dtype, out_dtype):
    _, arguments = weight(rng, n, 72, 0.8)
    code = Emitter(*arguments, dtype=dtype, out_dtype=out_dtype, shape=CodeShape(16, 2, 2)).module()
    (tmp_path / "code.ptx").write_bytes(code.ptx)
    for arch in ("sm_80", "sm_90"):
        subprocess.run(
            ["ptxas", f"-arch={arch}", tmp_path / "code.ptx", "-o", tmp_path / "code.cubin"],
            check=True,
        )


@pytest.mark.skipif(shutil.which("ptxas") is None, reason="no ptxas")
@pytest.mark.parametrize("n", [36, 35])
@pytest.mark.parametrize("parts", [1, 2, 8])
def test_it_assembles_for_clusters(rng, tmp_path, n, parts):
    _, arguments = weight(rng, n, 132, 0.8)
    code = Emitter(*arguments, shape=CodeShape(16, 2, 2, parts), hopper=True).module()
    (tmp_path / "code.ptx").write_bytes(code.ptx)
    subprocess.run(
        ["ptxas", "-arch=sm_90", tmp_path / "code.ptx", "-o", tmp_path / "code.cubin"], check=True
    )
