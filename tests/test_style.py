"""What a reader may rely on: one stem an op in every tree, public names that say what they take."""

import inspect
from pathlib import Path

import pytest

import jaxsparse as js

ROOT = Path(__file__).parents[1]


@pytest.mark.parametrize("op", ["masked_conv", "masked_matmul"])
def test_one_op_one_stem(op):
    for place in (
        f"jaxsparse/ops/{op}/api.py",
        f"jaxsparse/reference/{op}.py",
        f"cuda/variants/{op}.toml",
        f"cpu/variants/{op}.toml",
        f"tests/ops/{op}/test_{op}.py",
        f"benchmarks/{op}/table.py",
        f"docs/kernels/{op}.md",
    ):
        assert (ROOT / place).is_file(), place
    for tree in ("cuda", "cpu"):
        assert list((ROOT / tree / "kernels" / op).glob("*.h")), tree
        handlers = (ROOT / tree / "ffi" / name for name in (f"{op}.cc", f"{op}/handler.cc"))
        assert any(f.is_file() for f in handlers), tree
    assert len((ROOT / f"jaxsparse/reference/{op}.py").read_text().splitlines()) <= 60


def test_public_names_are_documented():
    for name in dir(js):
        value = getattr(js, name)
        if name.startswith("_") or inspect.ismodule(value) or not callable(value):
            continue
        text = inspect.getdoc(value) or ""
        assert len(text) > 60, name
        if inspect.isfunction(value) and len(inspect.signature(value).parameters) > 1:
            assert "Args:" in text, name
            assert "Raises:" in text or "Returns:" in text, name


def test_only_one_place_calls_ffi():
    for needle, place in (
        ("jax.ffi.ffi_call(", "jaxsparse/ffi/call.py"),
        ("register_ffi_target(", "jaxsparse/ffi/register.py"),
    ):
        trees = ("jaxsparse", "benchmarks", "examples", "cmake")
        files = [f for tree in trees for f in (ROOT / tree).rglob("*.py")]
        users = [f.relative_to(ROOT).as_posix() for f in files if needle in f.read_text()]
        assert users == [place]
