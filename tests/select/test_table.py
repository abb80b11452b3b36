"""Tuning tables as files: what is refused and why, and how two of them combine."""

import json

import msgspec
import pytest

import jaxsparse as js
from jaxsparse.select.table import (
    SCHEMA,
    Constant,
    Entry,
    Measured,
    Rate,
    Rung,
    base_for,
    shipped,
)
from jaxsparse.version import __version__

ENTRY = Entry("masked_conv", "float32", {"pixels": 64.0}, "wide", (Rung(1.0, "wide"),))
RATE = Rate("masked_conv", "float32", "wide", 1.0, 2.0, 0.0, shape=(9, 8, 8, 1))
TABLE = js.TuningTable(
    device="cpu",
    measured="here",
    entries=(ENTRY,),
    processors=2,
    rates=(RATE,),
    constants=(Constant("masked_matmul", "few_rows", (8.0,)),),
)


def test_a_table_is_kept_in_a_file(tmp_path):
    path = tmp_path / "table.json"
    TABLE.save(path)
    assert js.TuningTable.load(path, "cpu") == TABLE
    assert [p.name for p in tmp_path.iterdir()] == ["table.json"]


def test_shipped_tables_are_of_this_library(tmp_path):
    assert {"cpu", "NVIDIA H200"} <= shipped().keys()
    for device, table in shipped().items():
        assert table.schema == SCHEMA
        table.save(tmp_path / "table.json")
        assert js.TuningTable.load(tmp_path / "table.json", device) == table


def changed(**fields):
    return json.dumps(msgspec.to_builtins(TABLE) | fields).encode()


@pytest.mark.parametrize(
    ("text", "why"),
    [
        (TABLE.to_json()[:200], "not a tuning table"),
        (b"\xff\xfe", "not a tuning table"),
        (b'{"a": 1}', "it has no format"),
        (changed(format="another"), "it has format='another'"),
        (changed(schema=SCHEMA - 1), f"schema {SCHEMA - 1}, which is older"),
        (changed(schema=SCHEMA + 1), f"schema {SCHEMA + 1}, which is newer"),
        (changed(more=1), "unknown field `more`"),
        (changed(rates=[{"op": "masked_conv"}]), "rates"),
        (changed(device="NVIDIA H200"), "'NVIDIA H200', and this device is 'cpu'"),
        (changed(library="0.0.9"), f"jaxsparse 0.0.9, and this is {__version__}"),
    ],
)
def test_a_file_is_refused_with_a_reason(tmp_path, text, why):
    path = tmp_path / "table.json"
    path.write_bytes(text)
    with pytest.raises(ValueError, match=why) as refusal:
        js.TuningTable.load(path, "cpu")
    assert str(path) in str(refusal.value)


def test_the_second_of_two_tables_comes_first():
    other = msgspec.structs.replace(
        TABLE,
        measured="there",
        entries=(msgspec.structs.replace(ENTRY, static="tall"),),
        rates=(
            msgspec.structs.replace(RATE, step=5.0),
            msgspec.structs.replace(RATE, variant="tall"),
        ),
        constants=(),
    )
    both = TABLE | other
    assert both.entries == other.entries
    assert both.rates == other.rates
    assert both.constants == TABLE.constants
    assert both.measured == "there; here"
    assert (TABLE | TABLE) == TABLE
    assert {r.variant: r.step for r in (other | TABLE).rates} == {"wide": 2.0, "tall": 2.0}


def test_tables_of_two_devices_do_not_combine():
    with pytest.raises(ValueError, match="'cpu' and 'x'"):
        TABLE | msgspec.structs.replace(TABLE, device="x")
    with pytest.raises(ValueError, match="2 and 3 multiprocessors"):
        TABLE | msgspec.structs.replace(TABLE, processors=3)


def test_constants_come_from_the_device():
    assert Measured("masked_matmul", "cuda")("dense_from", "boxes") == 0.6
    assert Measured("pruned_strips", "cpu").several("load") == (0.2,)
    with pytest.raises(KeyError, match="no 'few_rows' of pruned_strips"):
        Measured("pruned_strips", "cpu")("few_rows")


def test_a_folder_that_is_missing_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match=r"there is no folder .*missing") as refusal:
        TABLE.save(tmp_path / "missing" / "table.json")
    assert ".part" not in str(refusal.value)


def test_the_repr_of_a_table_is_one_line():
    assert repr(js.TuningTable("cpu", "now", ())) == (
        "TuningTable(device='cpu', 0 entries, 0 rates, tile=(1, 1))"
    )


def test_a_platform_never_takes_the_table_of_another():
    """A table tuned on a CPU chooses for the GPU branch of the same program, too."""
    assert base_for("cpu", "cpu").device == "cpu"
    assert base_for("cpu", "cuda") is base_for("a GPU that nobody knows", "cuda")
    assert base_for("NVIDIA H200", "cpu").device == "cpu"
