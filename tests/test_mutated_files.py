"""Whatever a file holds, reading it gives a value or an error that names the file: no hang, no
memory beyond the file's size times a bound, no file outside of its folder.

`JAXSPARSE_MUTATIONS` is how many files of each kind are tried (500 by default).
"""

import time
import tracemalloc
from collections.abc import Callable

import msgspec
import numpy as np
import pytest
from mutations import COUNT, mutated

import jaxsparse as js
from jaxsparse.bounded import read_categories, read_images, read_layer
from jaxsparse.pruned import files
from jaxsparse.pruned.plan import Tuned
from jaxsparse.select.table import FORMAT, SCHEMA
from jaxsparse.tune.cache import CostCache
from jaxsparse.tune.costs import Costs

#: Bytes that reading a file may take at its peak: what parsers keep, and a multiple of its size.
FIXED, EACH = 4 << 20, 64


def plan(kind: str) -> bytes:
    rng = np.random.default_rng(0)
    w = rng.standard_normal((6, 5) if kind == "matmul" else (3, 3, 2, 4)).astype(np.float32)
    pruned = js.pruned.inspect(np.where(js.prune.magnitude(w, 0.7), w, 0), kind=kind)
    tuned = Tuned("cpu", (4, 6), "float32", None, False, "strips", (1, 4, 1, 0, 16, 1), 1.0)
    return files.encode(js.pruned.Plan(pruned.pattern, pruned.kind, (tuned,)), pruned.values)


def signed(data: bytes) -> bytes:
    """With the length of its header and the digest that fit, as somebody would make them."""
    body = data[: -files._DIGEST_BYTES]
    at = len(files.MAGIC)
    end = body.find(b"}]}", at)
    if end > 0:
        body = body[:at] + (end - at - 1).to_bytes(4, "little") + body[at + 4 :]
    return body + files.hashlib.sha256(body).digest()


def table() -> bytes:
    head = msgspec.json.encode({"format": FORMAT, "schema": SCHEMA})[:-1]
    entry = js.TuningTable.from_json(
        head + b',"device":"cpu","measured":"x","tile":[1,2],"entries":[{"op":"masked_conv",'
        b'"dtype":"float32","features":{"pixels":4.0},"static":"a","ladder":'
        b'[{"up_to":0.5,"variant":"a"},{"up_to":1.0,"variant":"dense"}]}],"rates":[{"op":"x",'
        b'"dtype":"float32","variant":"a","start":1.0,"step":0.5,"tail":0.1,"shape":[1,2]}],'
        b'"constants":[{"op":"x","name":"y","value":[1.0,2.0]}]}'
    )
    return entry.to_json()


LAYER = b"".join(b"%d\t%d\t0.0625\n" % (i, i % 7 + 1) for i in range(1, 9))
CATEGORIES = b"1\n3\n8\n"
READERS: dict[str, tuple[bytes, Callable]] = {
    "a.plan": (plan("matmul"), js.PrunedWeight.load),
    "b.plan": (plan("conv"), js.PrunedWeight.load),
    "table.json": (table(), js.TuningTable.load),
    "layer.tsv": (LAYER, lambda path: read_layer(path, 8)),
    "images.tsv": (LAYER, lambda path: read_images(path, 8, 8)),
    "categories.tsv": (CATEGORIES, lambda path: read_categories(path, 8)),
}


def read_all(path, contents, read) -> tuple[int, float]:
    """How many were refused, and the longest time that one took; every error names the file."""
    refused, slowest, said = 0, 0.0, []
    for data in contents:
        path.write_bytes(data)
        tracemalloc.reset_peak()
        before = tracemalloc.get_traced_memory()[0]
        begin = time.process_time()
        try:
            read(path)
        except ValueError as error:
            refused += 1
            said.append(str(error))
        slowest = max(slowest, time.process_time() - begin)
        grown = tracemalloc.get_traced_memory()[1] - before
        assert grown < FIXED + EACH * len(data), (grown, data)
    nameless = [error for error in said if path.name not in error]
    assert not nameless, nameless[:3]
    return refused, slowest


@pytest.fixture
def traced():
    tracemalloc.start()
    yield
    tracemalloc.stop()


@pytest.mark.usefixtures("traced")
@pytest.mark.parametrize("name", READERS)
def test_a_mutated_file_is_read_or_refused_by_name(tmp_path, name):
    good, read = READERS[name]
    (tmp_path / "inside").mkdir()
    path = tmp_path / "inside" / name
    path.write_bytes(good)
    read(path)
    contents = mutated(good, 0)
    if name.endswith("plan"):  # half of them with a digest that fits
        contents = (signed(data) if i % 2 else data for i, data in enumerate(contents))
    refused, slowest = read_all(path, contents, read)
    assert refused > COUNT / 3
    assert slowest < 1.0
    assert [f.name for f in path.parent.iterdir()] == [name]
    assert [f.name for f in tmp_path.iterdir()] == ["inside"]


@pytest.mark.usefixtures("traced")
def test_a_mutated_cache_entry_counts_as_nothing_kept(tmp_path):
    key = {"op": "masked_conv", "features": {"pixels": 4.0}, "index": [[1, 2], (3,)]}
    costs = Costs(("a", "dense"), (0.5, 1.0), ((1.0, None), (2.0, 3.0)))
    cache = CostCache(tmp_path)
    cache.put(key, costs)
    assert cache.get(key) == costs
    (path,) = tmp_path.iterdir()
    good = path.read_bytes()
    kept = 0
    for data in [*mutated(good, 1), b"[" * 100_000, b"\xff" * 100]:
        path.write_bytes(data)
        found = cache.get(key)
        if found is not None:
            kept += 1
            assert found.table().shape == (len(found.density), len(found.variants))
    assert kept < COUNT / 3
    assert [f.name for f in tmp_path.iterdir()] == [path.name]


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"tile": [0, 1]}, r"tile is \(0, 1\); it takes sides from 1"),
        ({"tile": [-1, 1]}, r"tile is \(-1, 1\)"),
        ({"processors": 0}, "processors is 0"),
        ({"entries": [{"ladder": [{"up_to": 0.5, "variant": "a"}] * 1000}]}, "1000 rungs"),
        ({"entries": [{"ladder": [{"up_to": 1, "variant": ""}]}]}, r"variant is empty.*\[0\]"),
        ({"entries": [{"features": {"pixels": -1}}]}, "features.*is -1"),
    ],
)
def test_the_error_of_a_table_names_the_field(tmp_path, change, words):
    made = msgspec.json.decode(table())
    if "entries" in change:
        change = {"entries": [made["entries"][0] | change["entries"][0]]}
    (tmp_path / "t.json").write_bytes(msgspec.json.encode(made | change))
    with pytest.raises(ValueError, match=rf"t\.json: not a tuning table: .*{words}"):
        js.TuningTable.load(tmp_path / "t.json")


def test_a_plan_with_a_huge_window_is_refused(tmp_path):
    taps = 46340 * 46340
    header = files.Header("conv", taps, 1, 0, (46340, 46340), 1, "float32")
    text = msgspec.json.encode(header)
    data = files.MAGIC + len(text).to_bytes(4, "little") + text + bytes(8)
    (tmp_path / "a.plan").write_bytes(data + files.hashlib.sha256(data).digest())
    with pytest.raises(ValueError, match=r"a\.plan: pattern: a window .* 65536 taps at most"):
        js.PrunedWeight.load(tmp_path / "a.plan")
