"""`jaxsparse papers`: its exhibits, its checks, its files."""

import re
from pathlib import Path

import pytest
from typer.testing import CliRunner

from jaxsparse.__main__ import app
from jaxsparse.bench.papers import spardr
from jaxsparse.bench.papers.command import PAPERS
from jaxsparse.bench.papers.exhibit import Exhibit, PaperReport

RESULTS = Path(__file__).parents[3] / "benchmarks" / "results"
ROMAN = {"I": 1, "II": 2, "III": 3}
#: Paper -> how many tables and figures it has.
SIZES = {
    "dynaspa": (4, 16),
    "glare": (3, 3),
    "sparda": (2, 11),
    "spardr": (3, 10),
    "sparsert": (3, 8),
}


def run(*arguments: str):
    return CliRunner().invoke(app, ["papers", *arguments])


@pytest.mark.parametrize("paper", PAPERS)
def test_a_paper_has_exhibits_of_distinct_names(paper):
    labels = [exhibit.label for exhibit in PAPERS[paper]]
    assert len(set(labels)) == len(labels)
    assert any(exhibit.figures for exhibit in PAPERS[paper])


def named(label: str) -> set[tuple[str, int]]:
    """("Table" or "Figure", number) of everything that a label names: "Figures 1, 2 and 4 to 6"."""
    found = set()
    for kind, listed in re.findall(r"(Table|Figure)s? ((?:[\dIVab-f]+(?:, | and | to )?)+)", label):
        numbers = re.findall(r"(to )?([IV]+|\d+)", listed)
        last = 0
        for until, text in numbers:
            number = ROMAN.get(text) or int(text)
            found |= {(kind, n) for n in range(last + 1 if until else number, number + 1)}
            last = number
    return found


def test_labels_are_read():
    assert named("Figures 1, 2 and 4 to 6, Table I") == {
        *(("Figure", n) for n in (1, 2, 4, 5, 6)),
        ("Table", 1),
    }
    assert named("Table 1, Figures 4a to 4c") == {("Table", 1), ("Figure", 4)}


@pytest.mark.parametrize("paper", PAPERS)
def test_every_table_and_figure_of_a_paper_is_measured_or_named(paper):
    tables, figures = SIZES[paper]
    want = {("Table", n + 1) for n in range(tables)} | {("Figure", n + 1) for n in range(figures)}
    assert set().union(*(named(exhibit.label) for exhibit in PAPERS[paper])) == want


@pytest.mark.parametrize("paper", PAPERS)
def test_published_files_exist(paper):
    files = {file for exhibit in PAPERS[paper] for file in exhibit.published}
    assert [file for file in sorted(files) if not (RESULTS / file).is_file()] == []


@pytest.mark.parametrize("exhibit", ["Figure 10, Attention", "Table 4"])
def test_parts_of_dynaspa(exhibit, tmp_path):
    done = run("dynaspa", f"--only={exhibit}", "--small", "--samples=1", f"--out={tmp_path}")
    assert done.exit_code == 0, done.output
    (page,) = tmp_path.iterdir()
    assert page.name.startswith("dynaspa_")
    text = page.read_text()
    assert text.startswith("# The tables and figures of dynaspa\n")
    assert len(re.findall(r"^\| .* us: .* \|$", text, re.MULTILINE)) >= 3
    links = re.findall(r"\]\(\.\./([^)]*)\)", text)
    assert [link for link in links if not (RESULTS / link).is_file()] == []


def test_an_exhibit_is_measured_or_says_why_not():
    with pytest.raises(ValueError, match=r"^Table 1: figures or a reason"):
        Exhibit("Table 1", "a title", "theirs")


def test_figures_and_files(tmp_path):
    file, page = tmp_path / "new" / "out.json", tmp_path / "out.md"
    some = ["--only=Figure 10", "--only=figure 2", "--small", "--samples=1"]
    done = run("spardr", *some, f"--json={file}", f"--markdown={page}")
    assert done.exit_code == 0, done.output
    report = PaperReport.from_json(file.read_bytes())
    by_label = report.exhibits()
    assert set(by_label) == {"Figure 10", "Figure 2"}
    assert [line.case.split(":")[0] for line in by_label["Figure 10"]] == list(spardr.SMALL)
    assert all(line.here for line in by_label["Figure 10"])
    assert by_label["Figure 2"][0].missing in page.read_text()
    assert "Not measured here" in done.output


def test_a_wrong_result_is_caught(monkeypatch):
    right = spardr.pruned.pruned_conv
    monkeypatch.setattr(spardr.pruned, "pruned_conv", lambda *a, **k: right(*a, **k).at[0].add(1))
    monkeypatch.setattr(spardr, "SMALL", ("CV7",))
    done = run("spardr", "--only=Figure 9", "--small", "--samples=1")
    assert done.exit_code == 1
    assert "wrong" in done.output


@pytest.mark.parametrize(
    ("arguments", "message"),
    [(["nothing"], "nothing"), (["glare", "--only=Table IX"], "Table III")],
)
def test_bad_arguments(arguments, message):
    done = run(*arguments)
    assert done.exit_code == 2, done.output
    assert message in " ".join(done.output.replace("│", " ").split())  # without the box's lines
