"""`jaxsparse.info`: every fact, and that a broken one does not take the others with it."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest

import jaxsparse as js
from jaxsparse import info
from jaxsparse.ffi import register
from jaxsparse.info_screen import render, show

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
        assert isinstance(op["variants"], list)
    assert "dense" in facts["ops"]["masked_conv"]["variants"]
    assert facts["versions"]["jax"]
    assert facts["build"]["cuda"] in ("ON", "OFF")
    assert facts["build"]["why"]
    assert facts["devices"]["default"]


def test_one_screen_with_every_op(capsys):
    assert info.main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) <= 24
    facts = info.collect()
    assert max(map(len, render(facts).splitlines())) <= 100
    assert facts["ops"].keys() >= OPS
    for name, op in facts["ops"].items():
        (row,) = [line for line in lines if line.split()[:1] == [name]]
        assert row.split()[1] == op["takes"]
    for part in (js.__version__, facts["cpu"]["instruction_set"], "GPU", "CUDA kernels", "--json"):
        assert any(part in line for line in lines), part


def test_reasons_of_all_ops_stand_once():
    facts = info.collect()
    for op in facts["ops"].values():
        op["not"] = {"cuda": "no such module"}
    text = render(facts)
    assert text.count("no such module") == 1
    facts["ops"]["route"]["not"] = {"cuda": "it is too small" + 9 * " and more"}
    text = render(facts)
    assert "cuda: it is too small" in text
    assert text.count("cuda: no such module") == len(facts["ops"]) - 1
    names = [line.split()[0] for line in text.splitlines() if "cuda: no such module" in line]
    assert {*names, "route"} == {*facts["ops"]}, "a long reason cuts no name"


def test_a_pipe_gets_whole_lines(capsys):
    facts, reason = info.collect(), "a long reason" + 60 * " and more"
    facts["ops"]["route"]["not"] = {"cuda": reason}
    facts["build"]["why"] = reason
    show(facts)
    lines = capsys.readouterr().out.splitlines()
    assert any(line.startswith("route ") and line.rstrip().endswith(reason) for line in lines)
    assert not any("\N{HORIZONTAL ELLIPSIS}" in line for line in lines)
    assert "\N{HORIZONTAL ELLIPSIS}" in render(facts), "a terminal of 100 columns"


def test_a_build_without_cuda_says_how_to_get_it(monkeypatch):
    monkeypatch.setattr(register, "build_info", lambda: {"cuda": "OFF", "why": "no nvcc found"})
    text = render(info.collect())
    assert "not built (no nvcc found)" in text
    assert "JAXSPARSE_CUDA=ON pip install ." in text


def test_gpus_are_counted():
    facts = info.collect()
    facts["devices"]["cuda"] = ["NVIDIA H100 (sm_90)"] * 2
    facts["build"] = {"cuda": "ON", "why": "compiler in /usr"}
    facts["modules"]["cuda"] = {"architectures": "90a-real"}
    text = render(facts)
    assert "2 x NVIDIA H100 (sm_90)" in text
    assert "for 90a-real (compiler in /usr)" in text


@pytest.mark.parametrize(
    "fact", ["_versions", "_build", "_ffi", "_modules", "_cpu", "_devices", "_ops"]
)
def test_a_broken_fact_is_told(monkeypatch, capsys, fact):
    def broken():
        raise OSError("no such thing")

    monkeypatch.setattr(info, fact, broken)
    facts = info.collect()
    assert facts[fact.removeprefix("_")] == {"error": "OSError: no such thing"}
    assert fact == "_ops" or facts["ops"].keys() >= OPS
    if fact != "_ffi":  # in --json alone
        assert "no such thing" in render(facts)
    assert info.main(["--json"]) == 0
    assert "no such thing" in capsys.readouterr().out


def test_without_rich_the_facts_are_lines(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "rich.console", None)
    monkeypatch.delitem(sys.modules, "jaxsparse.info_screen")
    assert info.main([]) == 0
    text = capsys.readouterr().out
    for part in ("rich: ModuleNotFoundError", "versions:", "devices:", "instruction_set:", *OPS):
        assert part in text


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
