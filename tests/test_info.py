"""`jaxsparse.info`: every fact, and that a broken one does not take the others with it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jaxsparse as js
from jaxsparse import info

OPS = {"masked_conv", "tile_index", "pack_mask", "unpack_mask"}


def test_module_prints_json_that_names_every_op():
    command = [sys.executable, "-m", "jaxsparse.info", "--json"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    facts = json.loads(done.stdout)
    assert facts["ops"].keys() >= OPS
    for op in facts["ops"].values():
        assert op["takes"] in ("cpu", "cuda", "reference")
        assert all(op["not"].values())
        assert op["takes"] not in op["not"]
        assert op.get("variants", 1) >= 1
    assert facts["versions"]["jax"]
    assert facts["build"]["cuda"] in ("ON", "OFF")
    assert facts["build"]["why"]
    assert facts["devices"]["default"]


def test_text_has_the_same_facts(capsys):
    assert info.main([]) == 0
    text = capsys.readouterr().out
    for part in ("versions:", "build:", "ffi:", "devices:", "instruction_set:", *OPS):
        assert part in text


@pytest.mark.parametrize("fact", ["_versions", "_build", "_ffi", "_modules", "_cpu", "_devices"])
def test_a_broken_fact_is_told(monkeypatch, fact):
    def broken():
        raise OSError("no such thing")

    monkeypatch.setattr(info, fact, broken)
    facts = info.collect()
    assert facts[fact.removeprefix("_")] == {"error": "OSError: no such thing"}
    assert facts["ops"].keys() >= OPS
    assert "no such thing" in info.render(facts)


def test_modules_say_what_they_were_built_for():
    facts = info.collect()
    assert facts["ffi"]["runtime"].count(".") == 1
    for module in facts["modules"].values():
        assert module.get("error") or module["architectures"]
    assert facts["cpu"]["instruction_set"]


def test_dir_shows_the_api():
    assert {"masked_conv", "tile_index", "nn", "config", "__version__"} <= set(dir(js))
    assert not {"ops", "ffi", "reference", "index"} & set(dir(js))
    assert {"linen", "nnx", "pruned_dot_general"} <= set(dir(js.nn))
    text = Path(js.__file__).read_text()
    assert sorted(js.__all__) == sorted(re.findall(r" as (\w+)$", text, re.MULTILINE))
    assert all(hasattr(js, name) for name in js.__all__)
