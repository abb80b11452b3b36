"""The comparison of two builds' machine code, on libraries made here."""

import importlib.util
from collections import Counter
from pathlib import Path

import pytest

SCRIPT = Path(__file__).parents[2] / "cmake/compare_cubins.py"

pytestmark = pytest.mark.skipif(not SCRIPT.is_file(), reason="the build's scripts are not here")


@pytest.fixture(scope="module")
def compare():
    spec = importlib.util.spec_from_file_location("compare_cubins", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def local(folder, file, digest):
    """The symbol of a kernel `Unpack` with internal linkage, as nvcc writes it."""
    space = f"_GLOBAL__N__{digest}_{len(file)}_{file}_{digest}"
    return f"_ZN9{folder}{len(space)}{space}6UnpackIjEEvPKj"


def test_a_moved_file_keeps_its_kernels_names(compare):
    here = compare.stable_name(local("jaxsparse", "pack_cu", "3b3cd26a"))
    there = compare.stable_name(local("jaxsparse", "longer_name_cu", "00fd1e22"))
    assert here == there == "_ZN9jaxsparselocal6UnpackIjEEvPKj"
    assert compare.stable_name("_ZN9jaxsparse6UnpackIjEEvPKj") == "_ZN9jaxsparse6UnpackIjEEvPKj"
    assert compare.stable_name(local("jaxspars2", "a_cu", "1b3cd26a")).startswith(
        "_ZN9jaxspars2local"
    )


def member(name, data):
    head = f"{name:<16}{0:<12}{0:<6}{0:<6}{644:<8}{len(data):<10}`\n".encode()
    return head + data + b"\n" * (len(data) % 2)


def test_members_of_a_library(compare, tmp_path):
    library = tmp_path / "lib.a"
    parts = (
        member("/", b"index") + member("launch.cu.o/", b"one") + member("launch.cu.o/", b"three!")
    )
    library.write_bytes(b"!<arch>\n" + parts)
    assert list(compare.members(library)) == [b"one", b"three!"]
    library.write_bytes(b"\x7fELF")
    assert list(compare.members(library)) == [b"\x7fELF"]


def test_usage(compare):
    text = (
        "arch = sm_90a\n Function f:\n  REG:16 STACK:0\n"
        "arch = sm_80\n Function f:\n  REG:20 STACK:8\n"
    )
    expected = {("sm_90a", "f"): "REG:16 STACK:0", ("sm_80", "f"): "REG:20 STACK:8"}
    assert compare.usage_of(text) == expected


def test_differences(compare):
    a = {("sm_90a", "f"): Counter(["x"]), ("sm_90a", "g"): Counter(["y", "z"])}
    assert compare.differences(a, a) == []
    fewer = {("sm_90a", "g"): Counter(["y"])}
    assert [line for line in compare.differences(a, fewer) if not line.startswith(" ")] == [
        "sm_90a f: only in the first",
        "sm_90a g: differs",
    ]
    assert compare.differences({}, fewer) == ["sm_90a g: only in the second"]
