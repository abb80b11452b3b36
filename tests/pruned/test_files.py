"""Plans on disk: there and back, and every way in which a file may be broken."""

import os

import jax
import jax.numpy as jnp
import msgspec
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.pruned import files
from jaxsparse.pruned.executor import Problem
from jaxsparse.pruned.executors.choice import executor
from jaxsparse.pruned.pattern import Pattern
from jaxsparse.pruned.plan import Tuned


def example(rng, dtype="float32", kind="matmul"):
    shape = (20, 33) if kind == "matmul" else (3, 3, 4, 12)
    w = rng.standard_normal(shape).astype(np.float32)
    w = np.where(js.prune.magnitude(w, 0.7), w, 0).astype(jnp.dtype(dtype))
    return js.pruned.inspect(w, kind=kind, groups=1 if kind == "matmul" else 2)


def encoded(pruned):
    return files.encode(pruned.plan, pruned.values)


@pytest.mark.parametrize("dtype", ["float32", "bfloat16", "float16"])
@pytest.mark.parametrize("kind", ["matmul", "conv"])
def test_there_and_back(rng, tmp_path, dtype, kind):
    pruned = example(rng, dtype, kind)
    pruned.save(tmp_path / "a.plan")
    again = js.PrunedWeight.load(tmp_path / "a.plan")
    assert again.plan == pruned.plan
    assert again.values.dtype == dtype
    np.testing.assert_array_equal(again.values, pruned.values)
    assert [f.name for f in tmp_path.iterdir()] == ["a.plan"]


def parts(rng):
    data = encoded(example(rng))
    at = len(files.MAGIC) + 4
    length = int.from_bytes(data[at - 4 : at], "little")
    return msgspec.json.decode(data[at : at + length]), data[at + length : -32]


def joined(header, body):
    """A file with a digest that fits."""
    text = msgspec.json.encode(header)
    data = files.MAGIC + len(text).to_bytes(4, "little") + text + body
    return data + files.hashlib.sha256(data).digest()


def test_every_truncation_is_refused(rng, tmp_path):
    header, body = parts(rng)
    data = joined(header, body)
    assert files.decode(data)[0].pattern.entries > 0
    for length in [*range(0, len(data) - len(body) + 2, 7), len(data) - 1]:
        with pytest.raises(ValueError, match=r"plan|truncated|header"):
            files.decode(data[:length])
    (tmp_path / "b.plan").write_bytes(data[:-1])
    with pytest.raises(ValueError, match=r"b\.plan: truncated"):
        js.PrunedWeight.load(tmp_path / "b.plan")


@pytest.mark.parametrize("flip", [0x01, 0x03, 0x20, 0x80])
@pytest.mark.parametrize("kind", ["matmul", "conv"])
def test_every_altered_byte_is_refused(rng, kind, flip):
    """Of the header, too: another window, kind, dtype or number of inputs would run, wrongly."""
    data = encoded(example(rng, "float16", kind))
    for at in range(len(data)):
        with pytest.raises(ValueError, match=r"altered|another version|not a plan"):
            files.decode(data[:at] + bytes([data[at] ^ flip]) + data[at + 1 :])


@pytest.mark.parametrize(
    ("kind", "old", "new"),
    [
        ("matmul", b'"dtype":"float16"', b'"dtype":"bfloat16"'),
        ("matmul", b'"n_in":20', b'"n_in":21'),
        ("conv", b'"window":[3,3]', b'"window":[1,9]'),
        ("conv", b'"groups":2', b'"groups":1'),
    ],
)
def test_a_header_that_was_edited_is_refused(rng, kind, old, new):
    data = encoded(example(rng, "float16", kind))
    at = len(files.MAGIC)
    length = int.from_bytes(data[at : at + 4], "little") + len(new) - len(old)
    assert data.count(old) == 1
    edited = files.MAGIC + length.to_bytes(4, "little") + data[at + 4 :].replace(old, new)
    with pytest.raises(ValueError, match="altered"):
        files.decode(edited)


def test_a_file_of_another_version_is_refused(rng):
    data = encoded(example(rng))
    with pytest.raises(ValueError, match="another version of jaxsparse: inspect and save it again"):
        files.decode(data.replace(b"plan 2", b"plan 1"))


NOT_SAVED = {
    "NaN": (lambda p: p.with_values(p.values * np.nan), "NaN or Inf"),
    "Inf": (lambda p: p.from_dense(np.full(p.shape, np.inf, np.float32)), "NaN or Inf"),
    "integers": (lambda p: js.PrunedWeight(p.values.astype(int), p.plan), "values are int32"),
    "several": (lambda p: jax.tree.map(lambda v: jnp.stack([v, v]), p), r"shape \(2, 198\)"),
}


@pytest.mark.parametrize("why", NOT_SAVED)
def test_what_would_not_load_is_not_saved(rng, tmp_path, why):
    change, words = NOT_SAVED[why]
    with pytest.raises(ValueError, match=rf"a\.plan: .*{words}"):
        change(example(rng)).save(tmp_path / "a.plan")
    assert not list(tmp_path.iterdir())


def test_what_cannot_be_read_is_an_os_error(tmp_path):
    for path in (tmp_path / "missing", tmp_path):
        with pytest.raises(OSError, match=path.name):
            js.PrunedWeight.load(path)


HAND_MADE = {
    "an unknown field": ({"code": "import os"}, "unknown field `code`"),
    "another kind": ({"kind": "exec"}, "kind 'exec'"),
    "a window of a product": ({"window": [2, 2]}, "'matmul' with window"),
    "a window without a side": ({"window": [0, 3], "kind": "conv"}, "two sides of 1 or more"),
    "a window of negative sides": ({"window": [-1, -1], "kind": "conv"}, "two sides of 1 or more"),
    "another dtype": ({"dtype": "object"}, "dtype 'object'"),
    "too many outputs": ({"n_out": 2**40}, "bytes of arrays"),
    "a negative size": ({"entries": -5}, "negative"),
    "too few inputs": ({"n_in": 3}, "index is out of range"),
    "groups of a product": ({"groups": 5}, "'matmul' with 5 groups"),
    "groups that divide a product": ({"groups": 2}, "'matmul' with 2 groups"),
    "a string for a number": ({"n_in": "20"}, "Expected `int`"),
}


@pytest.mark.parametrize("why", HAND_MADE)
def test_hand_made_headers(rng, why):
    header, body = parts(rng)
    change, words = HAND_MADE[why]
    with pytest.raises(ValueError, match=words):
        files.decode(joined({**header, **change}, body))


def test_a_block_diagonal_product_has_no_groups(rng):
    w = np.zeros((6, 4), np.float32)
    w[:3, :2] = w[3:, 2:] = 1.0
    pattern = js.pruned.inspect(w).pattern
    grouped = js.pruned.Pattern(6, 4, pattern.indptr, pattern.indices, None, 2)
    with pytest.raises(ValueError, match="'matmul' with 2 groups"):
        files.check_plan(js.pruned.Plan(grouped, "matmul"))


def test_a_file_is_for_whomever_the_umask_lets_read_it(rng, tmp_path):
    before = os.umask(0o027)
    try:
        example(rng).save(tmp_path / "a.plan")
    finally:
        os.umask(before)
    assert (tmp_path / "a.plan").stat().st_mode & 0o777 == 0o640


def test_a_file_that_cannot_be_replaced_leaves_nothing_behind(rng, tmp_path):
    (tmp_path / "a.plan" / "in the way").mkdir(parents=True)
    with pytest.raises(OSError, match=r"a\.plan"):
        example(rng).save(tmp_path / "a.plan")
    assert [f.name for f in tmp_path.iterdir()] == ["a.plan"]


def test_hand_made_arrays(rng):
    header, body = parts(rng)
    indptr = 4 * (header["n_out"] + 1)
    for at, what in ((indptr, b"\xff\xff\xff\x7f"), (8, b"\xff\xff\xff\x7f"), (0, b"\x01\0\0\0")):
        with pytest.raises(ValueError, match="pattern"):
            files.decode(joined(header, body[:at] + what + body[at + 4 :]))
    with pytest.raises(ValueError, match="NaN"):
        files.decode(joined(header, body[:-4] + np.float32(np.nan).tobytes()))


@pytest.mark.parametrize(
    "candidate",
    [
        (4, 49, 1, 0, 10**6, 1),
        (0, 1, 1, 0, 1, 1),
        (1, 49, 1, 0, 16, 1),
        (1, 2),
        (4, 64, 1, 0, -3, 1),
    ],
)
def test_hand_made_tunables_are_checked_when_they_are_used(rng, candidate):
    pruned = example(rng)
    x = np.ones((49, 20), np.float32)
    tuned = Tuned("cpu", (49, 20), "float32", None, False, "strips", candidate, 1.0)
    plan = js.pruned.Plan(pruned.pattern, "matmul", (tuned,))
    bad = js.PrunedWeight(pruned.values, plan)
    with pytest.raises(ValueError, match="strips"):
        js.pruned_matmul(x, bad, implementation="cpu")


@pytest.mark.parametrize("name", ["pairs", "lanes", "runs", "vectors", "code", "split", "rows"])
def test_hand_made_tunables_on_cuda(rng, name):
    """What packs for CUDA takes its own candidates and nothing else."""
    pattern = Pattern(64, 40, np.arange(41) * 8, np.tile(np.arange(8) * 8, 40))
    dtype = "bfloat16" if name in ("pairs", "lanes", "runs") else "float32"
    rows = 8 if dtype == "bfloat16" else 64
    problem = Problem(pattern, "cuda", (rows, 64), dtype, dtype, "default")
    found = executor("cuda", name)
    values = [np.ones(pattern.entries, np.float32)] if found.needs_values else []
    for bad in ((0,), (-1, 2), (3, 5, 7), (16, 1, 132, 9), (10**30,) * 4, (1,) * 9, (2**31, 1, 4)):
        assert bad not in found.candidates(problem)
        with pytest.raises(ValueError, match="candidate="):
            found.pack(problem, bad, *values)


def test_a_choice_that_does_not_exist_here_is_not_taken(rng):
    pruned = example(rng)
    x = np.ones((49, 20), np.float32)
    tuned = Tuned("cpu", (49, 20), "float32", None, False, "os.system", None, 1.0)
    plan = js.pruned.Plan(pruned.pattern, "matmul", (tuned,))
    got = js.pruned_matmul(x, js.PrunedWeight(pruned.values, plan), precision="highest")
    np.testing.assert_allclose(got, x @ np.asarray(pruned.to_dense()), atol=1e-4)
