"""The pages: their code runs, their links lead somewhere, their figures have a source, and their
words are those of CONTRIBUTING.
"""

import re
import subprocess
from pathlib import Path

import jax
import numpy as np
import pytest

import jaxsparse as js
from tests.docs import voice

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
RESULTS = ROOT / "benchmarks" / "results"
SITE = sorted(DOCS.rglob("*.md"))
PAGES = [*SITE, *(ROOT / name for name in ("README.md", "CONTRIBUTING.md", "CHANGELOG.md"))]
FENCE = re.compile(r"^```python([^\n]*)\n(.*?)^```", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\]\((?!https?:|mailto:)([^)#\s]*)(#[^)\s]+)?\)")
HASH = re.compile(r"\b(?=[0-9a-f]*[0-9])(?=[0-9a-f]*[a-f])[0-9a-f]{7,40}\b")
COMMAND = re.compile(r"python ((?:benchmarks|examples)/[\w/]+\.py)")


def name(path):
    return str(path.relative_to(ROOT))


def blocks(page):
    """The Python of a page: (line, code) of each block that runs on a CPU."""
    text = page.read_text()
    found = FENCE.finditer(text)
    return [(text.count("\n", 0, b.start()) + 1, b[2]) for b in found if "notest" not in b[1]]


def headings(page):
    """The anchors of a page, as mkdocs names them."""
    text = re.sub(r"^```.*?^```", "", page.read_text(), flags=re.MULTILINE | re.DOTALL)
    titles = re.findall(r"^#+ (.+)$", text, re.MULTILINE)
    plain = [re.sub(r"[^\w\s-]", "", title.lower()).strip() for title in titles]
    return {re.sub(r"[\s-]+", "-", title) for title in plain}


@pytest.mark.parametrize("page", [p for p in PAGES if blocks(p)], ids=name)
def test_code_runs(page, tmp_path, monkeypatch):
    """Every block of a page, in order, in one namespace."""
    monkeypatch.chdir(tmp_path)
    known = {"__name__": "page"}
    with jax.default_matmul_precision("highest"):  # a GPU's default is TF32
        for line, code in blocks(page):
            exec(compile("\n" * line + code, name(page), "exec"), known)
    arrays = {n: v for n, v in known.items() if isinstance(v, jax.Array)}
    assert [n for n, v in arrays.items() if np.isnan(np.asarray(v, np.float32)).any()] == []


def test_few_blocks_are_left_out():
    left_out = [name(p) for p in PAGES for b in FENCE.finditer(p.read_text()) if "notest" in b[1]]
    assert len(left_out) <= 3, left_out


@pytest.mark.parametrize("page", [*PAGES, *sorted(RESULTS.rglob("*.md"))], ids=name)
def test_links_resolve(page):
    wrong = []
    for link, anchor in LINK.findall(page.read_text()):
        target = (page.parent / link).resolve() if link else page
        if not target.exists() or (anchor and anchor[1:] not in headings(target)):
            wrong.append(link + anchor)
    assert wrong == []


@pytest.mark.parametrize("page", SITE, ids=name)
def test_no_history_and_no_wide_tables(page):
    text = page.read_text()
    assert HASH.findall(text) == [], "commits belong to benchmarks/results and CHANGELOG.md"
    assert [n for n in map(len, re.findall(r"^\|.*$", text, re.MULTILINE)) if n > 400] == []
    if page.parent.name == "kernels":
        assert len(text.splitlines()) <= 120
        wanted = [] if page.stem == "index" else ["Floor", "Design", "Measured", "Limits"]
        found = re.findall(r"^## (\w+)", text, re.MULTILINE)
        assert [w for w in wanted if w not in found] == []


@pytest.mark.parametrize("page", sorted(RESULTS.rglob("*.md")), ids=name)
def test_a_table_of_figures_has_a_source(page):
    text = page.read_text()
    for fact in ("Date", "Commit", "Device", "Command"):
        assert re.search(rf"^(- )?{fact}s?: ", text, re.MULTILINE), fact
    commands = COMMAND.findall(text)
    modules = ("jaxsparse bench", "jaxsparse papers", "python -m jaxsparse.bench")
    assert commands or any(module in text for module in modules)
    assert [c for c in commands if not (ROOT / c).is_file()] == []


def test_commands_of_the_pages_exist():
    missing = {
        (name(p), c)
        for p in PAGES
        for c in COMMAND.findall(p.read_text())
        if not (ROOT / c).is_file()
    }
    assert missing == set()


def test_every_public_name_is_on_an_api_page():
    text = "\n".join(p.read_text() for p in (DOCS / "api").glob("*.md"))
    listed = set(re.findall(r"^::: jaxsparse\.(\S+)$", text, re.MULTILINE))
    for path in listed:  # the page builds: every name is there
        value = js
        for part in path.split("."):
            value = getattr(value, part)
        assert value.__doc__
    public = {n for n in js.__all__ if callable(getattr(js, n))}
    known = {path.rpartition(".")[2] for path in listed}
    assert {n for n in public if n not in known} == set()


def test_pictures_are_small_and_made_by_the_script():
    script = (DOCS / "pictures.py").read_text()
    pictures = sorted((DOCS / "pictures").iterdir())
    assert [p.name for p in pictures if p.stat().st_size > 60 * 1024] == []
    assert [p.name for p in pictures if f"def {p.stem}()" not in script] == []
    shown = "\n".join(p.read_text() for p in SITE)
    assert [p.name for p in pictures if f"pictures/{p.name})" not in shown] == []


@pytest.mark.parametrize("page", PAGES, ids=name)
def test_words_of_the_pages(page):
    assert list(voice.habits(voice.text_of(page))) == []


def tracked(*folders):
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", *folders],
        cwd=ROOT,
        capture_output=True,
        text=True,
    ).stdout.split()
    files = [ROOT / f for f in listed] or [f for d in folders for f in (ROOT / d).rglob("*")]
    return [f for f in files if f.suffix in {".py", ".h", ".cc", ".cu", ".cuh"} and f.is_file()]


@pytest.mark.parametrize("folder", ["jaxsparse", "cuda", "cpu", "cmake", "examples", "benchmarks"])
def test_words_of_the_code(folder):
    files = tracked(folder)
    assert files
    found = {name(f): list(voice.habits(voice.text_of(f))) for f in files}
    assert {f: places for f, places in found.items() if places} == {}


@pytest.mark.parametrize(
    ("source", "count"),
    [
        ("# when `x` is no dtype", 1),
        ("# it is no longer so; there is no dtype; it is no wider", 0),
        ('"""A long sentence that\n    speaks of nothing."""', 1),
        ("nobody = 1  # a name is not read", 0),
        ('raise ValueError("x is no array")', 1),
        ("# a bool is no number; it is no `Weight`", 2),
    ],
)
def test_habits_are_found_in_what_a_reader_reads(source, count):
    assert len(list(voice.habits(voice.python_text(source)))) == count
