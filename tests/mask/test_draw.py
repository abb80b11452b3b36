"""Drawings in the terminal and with matplotlib."""

import sys

import jax
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.mask.draw import draw_index, draw_mask

CROSS = np.array([[1, 0, 0, 0, 0], [0, 1, 0, 0, 0], [1, 1, 1, 0, 0], [0, 0, 0, 0, 0]], bool)[None]


def test_two_pixels_to_a_character():
    assert draw_mask(CROSS, columns=80) == "image 0: 4 x 5, 25.0 % active\n▀▄\n▀▀▀"


def test_listed_tiles_are_grey():
    index = js.tile_index(CROSS, (4, 4), implementation="reference")
    assert draw_index(index, columns=80).splitlines()[1:] == ["▀▄░░", "▀▀▀░"]


def test_large_masks_are_scaled_down():
    lines = draw_mask(np.ones((5, 500, 900), bool), columns=60).splitlines()
    assert lines[0] == "image 0: 500 x 900, 100.0 % active, one character is 15 x 30 pixels"
    assert max(map(len, lines[1:])) <= 71
    assert lines[1] == "█" * 60
    assert lines[-1] == "... and 3 more"


def test_show_prints(capsys):
    js.show(CROSS)
    js.show(CROSS[0])
    index = js.tile_index(CROSS, (2, 2), align="component")
    js.show(index)
    out = capsys.readouterr().out
    assert out.count("▀▀▀") == 3
    assert f"\n{index}\nimage 0: " in out
    with pytest.raises(TypeError, match="a mask is bool"):
        js.show(np.zeros(3))


def test_show_of_a_block_mask(capsys):
    dense = np.zeros((1, 2, 64, 48), bool)
    dense[0, 0, :16] = dense[0, 0, 16, 20] = dense[0, 1, 63, 47] = True
    mask = js.BlockMask.from_dense(dense, 16)
    js.show(mask)
    first = "image 0: 4 x 3, 25.0 % full, of blocks\n▀▀▀\n\n"
    second = "image 1: 4 x 3, 0.0 % full, of blocks\n\n  ░\n"
    assert capsys.readouterr().out == f"{mask}\n{first}{second}"


def test_repr_is_one_line():
    index = js.tile_index(CROSS, (4, 4), implementation="reference")
    told = "TileIndex(shape=(1, 4, 5), tile=(4, 4), capacity=2, align='grid', count=1)"
    assert repr(index) == str(index) == told


def test_no_drawing_of_what_has_no_values():
    texts = []

    @jax.jit
    def f(mask):
        texts.append(str(js.tile_index(mask, (2, 2))))
        return mask

    f(CROSS)
    plain = "TileIndex(shape=(1, 4, 5), tile=(2, 2), capacity=6, align='grid')"
    assert texts == [plain]
    assert repr(jax.vmap(lambda m: js.tile_index(m, (2, 2)))(CROSS[None])) == plain
    assert str(js.tile_index(np.zeros((0, 3, 0), bool), (2, 2))).startswith("TileIndex(")


def test_an_index_that_overflows_says_so():
    index = js.tile_index(np.ones((1, 8, 8), bool), (2, 2), capacity=3, ordered=True)
    assert "count=16, overflow" in str(index)


@pytest.mark.parametrize("align", ["grid", "component"])
def test_plot(tmp_path, align):
    pytest.importorskip("matplotlib")
    mask = np.repeat(CROSS, 3, axis=0)
    image = np.random.default_rng(0).random((40, 50, 3))
    figure = js.plot(js.tile_index(mask, (2, 2), align=align), image)
    assert len(figure.axes) == 3
    figure.savefig(tmp_path / "index.png")
    assert (tmp_path / "index.png").stat().st_size > 1000
    assert len(js.plot(mask[0]).axes) == 1
    js.plot(mask, image[None, ..., :1]).savefig(tmp_path / "mask.png")
    with pytest.raises(ValueError, match="image has shape"):
        js.plot(mask, np.zeros((2, 4, 4, 3)))


def test_plot_of_a_block_mask():
    pytest.importorskip("matplotlib")
    mask = js.BlockMask.from_dense(CROSS[:, None].repeat(2, 1), 16)
    figure = js.plot(mask)
    assert [axes.get_title()[:15] for axes in figure.axes] == ["batch 0, head 0", "batch 0, head 1"]
    assert "0 % of blocks left out" in figure.axes[0].get_title()
    with pytest.raises(ValueError, match="image"):
        js.plot(mask, np.zeros((4, 5)))


def test_without_matplotlib_plot_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r"needs matplotlib: pip install 'jaxsparse\[plot\]'"):
        js.plot(CROSS)
