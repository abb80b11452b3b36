"""The rooms of the Python package, read from its imports: layers point one way, no cycle among
modules or folders, one definition of what the machine is; and small folders and files everywhere.
"""

import functools
import subprocess
from collections import Counter
from pathlib import Path, PurePosixPath

import pytest
from structure.graphs import cycles
from structure.python_rooms import (
    HOMES,
    ROOMS,
    backwards,
    edges,
    folder_edges,
    module_name,
    parameters,
    second_homes,
)

ROOT = Path(__file__).parents[2]
MOST_FILES, MOST_LINES, MOST_UNKNOWN = 20, 400, 0.08
TREES = ("jaxsparse", "tests", "cpu", "cuda", "benchmarks", "docs", "contracts", "cmake")
CODE = {".py", ".h", ".cc", ".cu", ".cuh", ".cmake", ".toml"}

pytestmark = pytest.mark.skipif(
    not (ROOT / "jaxsparse" / "core").is_dir(), reason="the package's sources are not here"
)


@functools.cache
def sources() -> dict[str, str]:
    """Path -> text of every module, paths relative to the repository."""
    found = sorted((ROOT / "jaxsparse").rglob("*.py"))
    return {f.relative_to(ROOT).as_posix(): f.read_text() for f in found}


@functools.cache
def found_edges() -> set[tuple[str, str]]:
    return edges(sources())


def files() -> list[str]:
    """The repository's files in `TREES`, but for those that git ignores."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *TREES]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout.split("\n")
    if not any(listed):  # a copy without git
        every = (f for tree in TREES for f in (ROOT / tree).rglob("*") if f.suffix in CODE)
        listed = [f.relative_to(ROOT).as_posix() for f in every]
    return [f for f in listed if (ROOT / f).is_file()]


def crowded(paths: list[str], most: int = MOST_FILES) -> dict[str, int]:
    """The folders with more files than `most`."""
    sizes = Counter(PurePosixPath(f).parent.as_posix() for f in paths)
    return {f: n for f, n in sizes.items() if n > most}


def long_files(texts: dict[str, str], most: int = MOST_LINES) -> dict[str, int]:
    """The files with more lines than `most`."""
    lengths = {path: len(text.splitlines()) for path, text in texts.items()}
    return {path: n for path, n in lengths.items() if n > most}


def test_the_package_is_read():
    rooms = {name.split("/")[1] for name in sources() if name.count("/") > 1}
    assert rooms <= set(ROOMS), "a folder without a layer"
    assert {room for room in ROOMS if (ROOT / "jaxsparse" / room).is_dir()} == rooms
    assert len(sources()) > 200
    assert len(found_edges()) > 900


def test_layers_point_one_way():
    assert backwards(found_edges()) == []


def test_no_cycle_among_modules():
    assert cycles(found_edges()) == []


def test_no_cycle_among_folders():
    assert cycles(folder_edges(found_edges())) == []


def test_small_folders():
    paths = files()
    assert {PurePosixPath(f).parts[0] for f in paths} >= {"jaxsparse", "tests", "cpu", "cuda"}
    assert crowded(paths) == {}


def test_small_files():
    texts = {f: (ROOT / f).read_text() for f in files() if Path(f).suffix in CODE}
    assert len(texts) > 500
    assert long_files(texts) == {}
    assert sorted(len(text.splitlines()) for text in texts.values())[len(texts) // 2] <= 150


def test_one_definition():
    found = [
        line for path, text in sources().items() for line in second_homes(module_name(path), text)
    ]
    assert found == []


def test_homes_hold_what_they_are_homes_of():
    texts = {module_name(path): text for path, text in sources().items()}
    held = {what for home in set(HOMES.values()) for what in second_homes("", texts[home])}
    assert {line.partition(": ")[2] for line in held} == set(HOMES)


def test_types_of_parameters():
    found = [
        (f"{path}: {name}", known)
        for path, text in sources().items()
        if path.startswith("jaxsparse/ops/")
        for name, known in parameters(text)
    ]
    unknown = [name for name, known in found if not known]
    assert len(found) > 800
    assert len(unknown) < MOST_UNKNOWN * len(found), unknown


# What each check finds, on a violation made for it.

PLANTED = {
    "jaxsparse/core/a.py": "def f():\n    from jaxsparse.ops.b import g\n",
    "jaxsparse/ops/b.py": "from . import c\nfrom .d.e import x\n",
    "jaxsparse/ops/c.py": "import jaxsparse.ops.b\n",
    "jaxsparse/ops/d/e.py": "from ..c import x\n",
    "jaxsparse/ops/__init__.py": "from jaxsparse.ops.b import g as g\n",
}


def test_an_arrow_back_is_found():
    assert backwards(edges(PLANTED)) == ["jaxsparse.core.a imports jaxsparse.ops.b"]


def test_a_cycle_is_found():
    modules = ["jaxsparse.ops.b", "jaxsparse.ops.c", "jaxsparse.ops.d.e"]
    assert cycles(edges(PLANTED)) == [modules]
    assert cycles(folder_edges(edges(PLANTED))) == [["jaxsparse.ops", "jaxsparse.ops.d"]]


@pytest.mark.parametrize("lazy", [True, False])
def test_a_late_offer_is_not_an_import(lazy):
    door = "if TYPE_CHECKING:\n    from jaxsparse.ops.b import g as g\n"
    door += "__getattr__ = lazy(__name__, {})\n" if lazy else ""
    found = edges({"jaxsparse/core/__init__.py": door, "jaxsparse/ops/b.py": ""})
    assert len(backwards(found)) == (0 if lazy else 1)


def test_a_crowded_folder_is_found():
    paths = [f"tests/a/{i}.py" for i in range(21)] + [f"tests/b/{i}.py" for i in range(20)]
    assert crowded(paths) == {"tests/a": 21}


def test_a_long_file_is_found():
    assert long_files({"a": "x\n" * 401, "b": "x\n" * 400}) == {"a": 401}


@pytest.mark.parametrize(
    ("what", "text"),
    [
        ("the dtypes' table", 'SIZES = {"float32": 4, "bfloat16": 2, "float16": 2}'),
        ("the 16-bit dtypes", 'if dtype in ("float16", "bfloat16"): pass'),
        ("the number of cores", "import os\nn = len(os.sched_getaffinity(0))"),
        ("a device's constant", "waves = blocks / 132"),
        ("a device's constant", "cost = cycles / 1755.0"),
        ("the activations' table", 'A = {"relu": 1, "relu6": 2, "silu": 3}'),
        ("a contract's enum", "import enum\nclass Code(enum.IntEnum):\n    ZERO = 1"),
    ],
)
def test_a_second_definition_is_found(what, text):
    assert [line.split(": ")[1] for line in second_homes("jaxsparse.ops.a", text)] == [what]
    assert second_homes(HOMES[what], text) == []


def test_unknown_types_are_found():
    text = "def f(self, a, b: Any, c: tuple[typing.Any, ...], d: int, *e: str, **g): pass"
    unknown = [name for name, known in parameters(text) if not known]
    assert unknown == ["f.a", "f.b", "f.c", "f.g"]
