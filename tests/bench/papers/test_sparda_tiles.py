"""The cover cost against its definition, entry by entry; and Table 2 as the command prints it."""

import numpy as np
import pytest
from typer.testing import CliRunner

from jaxsparse.__main__ import app
from jaxsparse.bench.papers.exhibit import PaperReport
from jaxsparse.bench.papers.sparda_tiles import REPORTED, Strip, cover, least_cover


@pytest.mark.parametrize("block", [1, 5, 32])
@pytest.mark.parametrize("rows", [1, 6, 64, 200])
def test_cover_counts_the_columns_of_every_strip(block, rows):
    mask = np.random.default_rng(0).random((70 // block, 40)) < 0.2
    entries = np.repeat(mask, block, 0)
    want = sum(int(entries[i : i + rows].any(axis=0).sum()) for i in range(0, len(entries), rows))
    assert cover(mask, block, rows) == want


def test_sparse_masks_take_short_strips_and_dense_ones_tall_strips():
    rng = np.random.default_rng(0)
    strips = [Strip("short", 64, 1.0), Strip("tall", 128, 1.4)]
    masks = {d: [rng.random((16, 512)) < d for _ in range(3)] for d in (0.05, 0.9)}
    assert least_cover(masks[0.05], strips, 32).name == "short"
    assert least_cover(masks[0.9], strips, 32).name == "tall"


def test_table_2(tmp_path):
    file = tmp_path / "out.json"
    some = ["--only=Table 2", "--small", "--samples=1", f"--json={file}"]
    done = CliRunner().invoke(app, ["papers", "sparda", *some])
    assert done.exit_code == 0, done.output
    lines = PaperReport.from_json(file.read_bytes()).exhibits()["Table 2"]
    assert len(lines) == len(REPORTED)
    assert all("fastest: " in line.here and line.paper for line in lines)
