"""The rooms of the C++ trees, read from their `#include`s: layers point one way, no cycle among
folders, no kernel folder that includes another op's, small folders, small files.
"""

import functools
import re
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest
from structure.graphs import cycles

ROOT = Path(__file__).parents[2]
CODE = {".h", ".cc", ".cu", ".cuh"}
INCLUDE = re.compile(r'^\s*#\s*include\s+"((?:cuda|cpu)/[^"]+)"', re.MULTILINE)
MOST_FILES, MOST_LINES = 20, 400

#: The folders of a tree from the bottom up. A file includes only its own layer and those below it.
#: Files of the tree's root (module.cc, workspace.cc) stand above all layers.
LAYERS = {
    "cuda": ("core", "bits", "index", "recorder", "tile", "kernels", "ffi"),
    "cpu": ("core", "bits", "index", "recorder", "tile", "isa", "kernels", "ffi"),
}

pytestmark = pytest.mark.skipif(
    not all((ROOT / tree / "kernels").is_dir() for tree in LAYERS),
    reason="the C++ sources are not beside the tests",
)


@functools.cache
def sources() -> dict[str, str]:
    """Path -> text of every C++ and CUDA file, paths relative to the repository."""
    files = (f for tree in LAYERS for f in (ROOT / tree).rglob("*") if f.suffix in CODE)
    return {f.relative_to(ROOT).as_posix(): f.read_text() for f in sorted(files)}


def includes() -> list[tuple[str, str]]:
    """(file, included file) for every include of a file of the two trees."""
    return [(file, name) for file, text in sources().items() for name in INCLUDE.findall(text)]


def folder(path: str) -> str:
    return PurePosixPath(path).parent.as_posix()


def rank(path: str) -> int:
    """The layer of a file, counted from the bottom."""
    tree, *rest = PurePosixPath(path).parts
    return LAYERS[tree].index(rest[0]) if len(rest) > 1 else len(LAYERS[tree])


def op(path: str) -> str | None:
    """The op whose room a file lies in, or None outside of kernels/."""
    parts = PurePosixPath(path).parts
    return parts[2] if parts[1] == "kernels" and len(parts) > 3 else None


def test_the_trees_are_read():
    found = includes()
    assert len(sources()) > 300
    assert len(found) > 600
    for tree, layers in LAYERS.items():
        folders = {PurePosixPath(f).parts[1] for f in sources() if len(PurePosixPath(f).parts) > 2}
        here = {PurePosixPath(f).parts[1] for f in sources() if f.startswith(f"{tree}/")}
        assert set(layers) <= folders
        assert {p for p in here if "." not in p} == set(layers), "a folder without a layer"


def test_every_include_names_a_file():
    assert [f"{file} includes {name}" for file, name in includes() if name not in sources()] == []


def test_a_tree_includes_itself_only():
    crossed = [f"{a} includes {b}" for a, b in includes() if a.split("/")[0] != b.split("/")[0]]
    assert crossed == []


def test_layers_point_one_way():
    back = [f"{a} includes {b}" for a, b in includes() if rank(b) > rank(a)]
    assert back == []


def test_no_cycle_among_folders():
    edges = {(folder(a), folder(b)) for a, b in includes() if folder(a) != folder(b)}
    assert cycles(edges) == []


def test_no_cycle_among_files():
    assert cycles(set(includes())) == []


def test_an_op_includes_no_other_op():
    other = [f"{a} includes {b}" for a, b in includes() if op(a) and op(b) and op(a) != op(b)]
    assert other == []


def test_kernels_lie_in_rooms():
    loose = [f for f in sources() if PurePosixPath(f).parts[1] == "kernels" and op(f) is None]
    assert loose == []


def test_small_folders():
    sizes = Counter(folder(f) for f in sources())
    assert {f: n for f, n in sizes.items() if n > MOST_FILES} == {}


def test_small_files():
    lengths = {f: len(text.splitlines()) for f, text in sources().items()}
    assert {f: n for f, n in lengths.items() if n > MOST_LINES} == {}


def test_cycles_are_found():
    assert cycles({("a", "b"), ("b", "c")}) == []
    assert cycles({("a", "b"), ("b", "c"), ("c", "a"), ("d", "a")}) == [["a", "b", "c"]]
    assert cycles({("a", "a")}) == [["a"]]
