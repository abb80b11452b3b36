"""What the build decides: whether, with which compiler and for which architectures."""

import importlib
import itertools
import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CMAKE = ROOT / "cmake"


@pytest.fixture
def build(monkeypatch):
    """The build's modules, as its backend imports them, with nothing set."""
    monkeypatch.syspath_prepend(str(CMAKE))
    for name in ("JAXSPARSE_CUDA", "JAXSPARSE_CUDA_ARCHITECTURES"):
        monkeypatch.delenv(name, raising=False)
    names = ("machine", "architectures", "decide")
    for name in names:
        monkeypatch.delitem(sys.modules, name, raising=False)
    modules = {name: importlib.import_module(name) for name in names}
    yield type("Build", (), modules)
    for name in names:
        sys.modules.pop(name, None)


def on(build, monkeypatch, *, gpus=(), machine=None, wheels=None):
    """A machine with these GPUs, and these versions of nvcc of its own and from PyPI."""
    toolkit = build.machine.Toolkit
    monkeypatch.setattr(build.machine, "gpus", lambda: list(gpus))
    for owner, version in (("machine", machine), ("wheels", wheels)):
        found = toolkit(Path("/opt") / owner, owner, version) if version else None
        monkeypatch.setattr(build.machine, f"{owner.removesuffix('s')}_toolkit", lambda f=found: f)


def make_toolkit(root, release="13.0"):
    (root / "bin").mkdir(parents=True)
    (root / "include").mkdir()
    nvcc = root / "bin" / "nvcc"
    nvcc.write_text(f"#!/bin/sh\necho 'Cuda compilation tools, release {release}, V{release}.1'\n")
    nvcc.chmod(0o755)
    (root / "include" / "cuda_runtime.h").touch()
    return root


def test_cuda_home_wins(build, monkeypatch, tmp_path):
    home = make_toolkit(tmp_path / "cuda", "12.9")
    monkeypatch.setenv("CUDA_HOME", str(home))
    assert build.machine.machine_toolkit() == (home, "machine", (12, 9))


def test_a_compiler_without_headers_is_passed_over(build, tmp_path):
    assert build.machine.is_toolkit(make_toolkit(tmp_path / "whole"))
    (tmp_path / "whole" / "include" / "cuda_runtime.h").unlink()
    assert not build.machine.is_toolkit(tmp_path / "whole")


def test_a_gpu_gets_its_own_kernels(build, monkeypatch):
    on(build, monkeypatch, gpus=[(9, 0), (9, 0)], machine=(13, 0))
    found = build.decide.decide()
    assert (found.cuda, found.architectures) == (True, "90a-real")


def test_without_a_gpu_the_cpu_module_alone(build, monkeypatch):
    on(build, monkeypatch, machine=(13, 0))
    found = build.decide.decide()
    assert not found.cuda
    assert "JAXSPARSE_CUDA=ON builds the CUDA kernels" in found.why


def test_an_old_gpu_is_named(build, monkeypatch):
    on(build, monkeypatch, gpus=[(7, 5)], machine=(13, 0))
    found = build.decide.decide()
    assert not found.cuda
    assert "7.5" in found.why


def test_on_builds_the_release(build, monkeypatch):
    on(build, monkeypatch, machine=(13, 0))
    monkeypatch.setenv("JAXSPARSE_CUDA", "on")
    found = build.decide.decide()
    release = build.architectures.parse(build.architectures.RELEASE)
    assert found.architectures.split(";") == [str(entry) for entry in release]


@pytest.mark.parametrize("machine", [None, (12, 4)])
def test_the_compiler_from_pypi(build, monkeypatch, machine):
    on(build, monkeypatch, gpus=[(8, 0)], machine=machine)
    assert build.decide.decide().toolkit is None  # the backend asks PyPI for it
    on(build, monkeypatch, gpus=[(8, 0)], machine=machine, wheels=(13, 0))
    assert build.decide.decide().toolkit.owner == "wheels"


def test_the_backend_asks_for_a_compiler_only_where_one_is_wanted(build, monkeypatch):
    pytest.importorskip("scikit_build_core")
    monkeypatch.delitem(sys.modules, "backend", raising=False)
    backend = importlib.import_module("backend")
    monkeypatch.setenv("JAXSPARSE_CUDA", "ON")
    on(build, monkeypatch)
    assert any(r.startswith("nvidia-cuda-nvcc==13.0") for r in backend.compiler_requires())
    on(build, monkeypatch, machine=(13, 0))
    assert backend.compiler_requires() == []
    monkeypatch.setenv("JAXSPARSE_CUDA", "AUTO")
    on(build, monkeypatch)
    assert backend.compiler_requires() == []
    sys.modules.pop("backend")


@pytest.mark.parametrize(
    ("name", "value", "word"),
    [
        ("JAXSPARSE_CUDA", "YES", "AUTO, ON or OFF"),
        ("JAXSPARSE_CUDA_ARCHITECTURES", "75", "'75' is not a CUDA architecture"),
        ("JAXSPARSE_CUDA_ARCHITECTURES", "90b", "'90b' is not a CUDA architecture"),
        ("JAXSPARSE_CUDA_ARCHITECTURES", ";", "is empty"),
        ("JAXSPARSE_CUDA_ARCHITECTURES", "native", "no GPU"),
    ],
)
def test_a_wish_that_cannot_be_met(build, monkeypatch, name, value, word):
    on(build, monkeypatch, machine=(13, 0))
    monkeypatch.setenv("JAXSPARSE_CUDA", "ON")
    monkeypatch.setenv(name, value)
    assert word in build.decide.decide().error


def test_no_compiler_ends_in_one_sentence(monkeypatch, tmp_path):
    monkeypatch.setenv("JAXSPARSE_CUDA", "ON")
    monkeypatch.setenv("CUDA_HOME", str(make_toolkit(tmp_path, "11.8")))
    monkeypatch.setenv("JAXSPARSE_CUDA_ARCHITECTURES", "80")
    done = subprocess.run(
        [sys.executable, "-S", CMAKE / "decide.py"], capture_output=True, text=True, check=True
    )
    found = json.loads(done.stdout)
    assert found["cuda"] == "OFF"
    assert "needs nvcc 12.8 or newer" in found["error"]


ENTRIES = ("80-real", "90a-real", "100-virtual")


@pytest.mark.parametrize("order", list(itertools.permutations(ENTRIES)))
def test_the_order_of_a_list_does_not_matter(build, order):
    entries = build.architectures.parse(",".join(order))
    assert tuple(map(str, entries)) == ENTRIES
    assert build.architectures.flags("any", entries) == [
        "--generate-code=arch=compute_80,code=[sm_80]",
        "--generate-code=arch=compute_90a,code=[sm_90a]",
        "--generate-code=arch=compute_100,code=[compute_100]",
    ]


def test_a_kernel_without_its_architecture_is_left_out(build):
    flags = build.architectures.flags("90a", build.architectures.parse("80-real 90-virtual"))
    assert flags == ["--generate-code=arch=compute_80,code=[sm_80]", "--diag-suppress=177"]


@pytest.mark.parametrize(
    ("listed", "compiled"),
    [
        ("80-real 86-real 87-real 89-real 90a-real", "80-real 87-real 90a-real"),
        ("86-real 89-real 89-virtual", "86-real 89-virtual"),
        ("80-virtual 86-real", "80-virtual 86-real"),  # PTX is not machine code
        ("100 103-real 110-real 120-real 121", "100 110-real 120-real 121"),
    ],
)
def test_costly_kernels_are_compiled_once_a_family(build, listed, compiled):
    entries = build.architectures.meeting("family", build.architectures.parse(listed))
    assert " ".join(map(str, entries)) == compiled


def test_the_release_has_machine_code_for_each_of_its_gpus(build):
    release = build.architectures.parse(build.architectures.RELEASE)
    flags = " ".join(build.architectures.flags("any", release))
    assert all(f"sm_{name}" in flags for name in ("80", "86", "89", "90a", "100", "120"))


def test_units_hold_rows_in_all_dtypes(build, tmp_path):
    variants = importlib.import_module("generate_variants")
    table = {
        "op": {"name": "op", "columns": ["tile"]},
        "unit": {
            "rows": 2,
            "dtypes": {"f": "float", "h": "half"},
            "template": "{dtype_cpp}{tile};",
        },
        "variant": [{"name": "direct"}, *({"name": f"t{n}", "tile": n} for n in (1, 2, 3))],
    }
    paths = variants.generate(table, tmp_path)
    assert [p.name for p in paths] == ["op_t1.cu", "op_t3.cu"]
    assert [p.read_text().split() for p in paths] == [
        ["float1;", "half1;", "float2;", "half2;"],
        ["float3;", "half3;"],
    ]


def test_the_table_names_files_that_are_there(build):
    needs = build.architectures.read_needs(ROOT / "cuda" / "architectures.toml")
    tables = {path.stem for path in (ROOT / "cuda" / "variants").glob("*.toml")}
    assert set(needs.variants) <= tables
    assert needs.of("variants/masked_conv/masked_conv_m128n64.cu") == "90a"
    assert needs.of("variants/masked_conv_mma/masked_conv_mma_mma64n64.cu") == "family"
    assert needs.of("variants/pruned_rows/pruned_rows_r1_c124_o4.cu") == "any"


def test_hopper_instructions_stand_under_their_condition(build):
    """A unit that holds Hopper's instructions and is compiled for every architecture would end in
    an error of ptxas.
    """
    needs = build.architectures.read_needs(ROOT / "cuda" / "architectures.toml")
    kernels = [p for p in (ROOT / "cuda").rglob("*.cu") if "__global__" in p.read_text()]
    hopper = [p for p in kernels if "__CUDA_ARCH_FEAT_SM90_ALL" in p.read_text()]
    assert hopper
    for path in hopper:
        assert needs.of(str(path.relative_to(ROOT / "cuda"))) == "90a", path
