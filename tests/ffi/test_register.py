"""Importing touches no backend; a runtime that is too old is refused with a sentence."""

import subprocess
import sys

import jax
import pytest

import jaxsparse as js
from jaxsparse.ffi import platform, register
from jaxsparse.ffi.platform import dispatch, plan


def test_import_starts_no_backend():
    code = (
        "import jaxsparse, jax._src.xla_bridge as bridge; "
        "assert not bridge.backends_are_initialized(); print(jaxsparse.__version__)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == js.__version__, done.stderr


def test_import_needs_no_flax_and_no_matplotlib():
    code = (
        "import sys; sys.modules['flax'] = None; sys.modules['matplotlib'] = None; "
        "import jaxsparse; print('in')"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "in", done.stderr


def test_versions():
    built = register.module("cpu")[0].ffi_api_version
    register.check_version(built, register.runtime_ffi_version())
    with pytest.raises(ImportError, match=r"speaks 0\.2.*pip install -U 'jax>=0\.10\.2'"):
        register.check_version((0, 3), (0, 2))
    with pytest.raises(ImportError, match="XLA FFI 1"):
        register.check_version((1, 0), (0, 4))
    register.check_version((0, 3), (0, 5))


def test_targets_are_prefixed_and_listed_for_export():
    assert register.TARGETS
    assert all(t.startswith("jaxsparse_") for t in register.TARGETS)
    assert len(js.DISABLE_JAX_EXPORT_CHECKS) == len(register.TARGETS)


def test_plan_prefers_native():
    assert plan("op", None, ("cuda", "cpu", "reference"))["cpu"] == "cpu"
    assert plan("op", ("reference", "cpu"), ("cpu", "reference"))["cpu"] == "reference"
    assert plan("op", None, ("reference",)) == dict.fromkeys(("cpu", "cuda", "other"), "reference")
    with pytest.raises(ValueError, match=r"cpu: this op has no 'cpu' implementation"):
        plan("op", "cpu", ("reference",))


def test_what_an_op_offers(monkeypatch):
    monkeypatch.setattr(platform, "_OFFERED", {})
    assert platform.offered_by("op") == platform.NAMES
    assert platform.offers("op", "cuda", "reference") == ("cuda", "reference")
    assert platform.offered_by("op") == ("cuda", "reference")
    with pytest.raises(ValueError, match=r"op offers .*dispatch was given"):
        dispatch("op", None, cpu=abs, reference=abs)
    with pytest.raises(ValueError, match=r"op offers .*some of cuda, cpu, reference"):
        platform.offers("op", "tpu")


def test_dispatch_runs_what_was_planned():
    def both(tag):
        return lambda x: x + tag

    f = dispatch("op", None, cpu=both(1.0), cuda=both(1.0), reference=both(2.0))
    assert jax.jit(f)(1.0) == 2.0
    assert dispatch("op", "reference", cpu=both(1.0), reference=both(2.0))(1.0) == 3.0


def test_a_gpu_without_kernels_is_said(monkeypatch):
    monkeypatch.setattr(platform, "_home", lambda: "cuda")
    platform._warn_of_reference.cache_clear()
    with pytest.warns(RuntimeWarning, match="op runs its reference on this GPU.*no 'cuda'"):
        plan("op", None, ("cpu", "reference"))
    plan("op", None, ("cpu", "reference"))  # once per op
    plan("other", "reference", ("cpu", "reference"))  # asked for
    platform._warn_of_reference.cache_clear()


def test_a_cpu_without_kernels_is_said(monkeypatch):
    monkeypatch.setattr(platform, "_home", lambda: "cpu")
    monkeypatch.setattr(register, "module", lambda name: (None, f"no {name} module"))
    platform._warn_of_reference.cache_clear()
    with pytest.warns(RuntimeWarning, match=r"op runs its reference on this CPU.*no cpu module"):
        plan("op", None, ("cuda", "cpu", "reference"))
    plan("op", None, ("cuda", "cpu", "reference"))  # once per op
    plan("other", None, ("cuda", "reference"))  # has no kernels for a CPU
    platform._warn_of_reference.cache_clear()


def test_sources_without_a_build_are_said(monkeypatch, tmp_path):
    monkeypatch.setattr(register.resources, "files", lambda name: tmp_path)
    found = register.build_info()
    assert found["cuda"] == "OFF"
    assert str(tmp_path) in found["why"]
    assert "another folder" in found["why"]
