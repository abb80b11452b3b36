"""The build backend's decisions, read off its functions."""

import importlib.util
import sys
from pathlib import Path

import pytest

CMAKE = Path(__file__).parents[2] / "cmake"


@pytest.fixture
def toolkit(monkeypatch):
    spec = importlib.util.spec_from_file_location("find_toolkit", CMAKE / "find_toolkit.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    monkeypatch.setitem(sys.modules, "find_toolkit", module)
    return module


def make_toolkit(root):
    (root / "bin").mkdir(parents=True)
    (root / "include").mkdir()
    (root / "bin" / "nvcc").touch()
    (root / "include" / "cuda_runtime.h").touch()
    return root


def test_cuda_home_wins(toolkit, monkeypatch, tmp_path):
    home = make_toolkit(tmp_path / "cuda")
    monkeypatch.setenv("CUDA_HOME", str(home))
    assert toolkit.machine_toolkit() == home


def test_a_lone_nvcc_is_no_toolkit(toolkit, tmp_path):
    assert toolkit.is_toolkit(make_toolkit(tmp_path / "whole"))
    (tmp_path / "whole" / "include" / "cuda_runtime.h").unlink()
    assert not toolkit.is_toolkit(tmp_path / "whole")


def test_wheels_are_asked_for_only_when_demanded_and_absent(toolkit, monkeypatch):
    pytest.importorskip("scikit_build_core")
    monkeypatch.syspath_prepend(str(CMAKE))
    import backend

    monkeypatch.setattr(backend, "machine_toolkit", lambda: None)
    monkeypatch.setenv("JAXSPARSE_CUDA", "ON")
    assert any(r.startswith("nvidia-cuda-nvcc==13.0") for r in backend.toolkit_requires())
    monkeypatch.setenv("JAXSPARSE_CUDA", "AUTO")
    assert backend.toolkit_requires() == []
    monkeypatch.setattr(backend, "machine_toolkit", lambda: Path("/opt/cuda"))
    monkeypatch.setenv("JAXSPARSE_CUDA", "ON")
    assert backend.toolkit_requires() == []
