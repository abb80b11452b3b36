"""`jaxsparse papers`: its exhibits, its checks, its files."""

import pytest
from typer.testing import CliRunner

from jaxsparse.__main__ import app
from jaxsparse.bench.papers import spardr
from jaxsparse.bench.papers.command import PAPERS
from jaxsparse.bench.papers.exhibit import Exhibit, PaperReport


def run(*arguments: str):
    return CliRunner().invoke(app, ["papers", *arguments])


@pytest.mark.parametrize("paper", PAPERS)
def test_a_paper_has_exhibits_of_distinct_names(paper):
    labels = [exhibit.label for exhibit in PAPERS[paper]]
    assert len(set(labels)) == len(labels)
    assert any(exhibit.figures for exhibit in PAPERS[paper])


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
    assert "Not reproduced" in done.output


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
