"""Cover cost against the definition, entry by entry."""

import numpy as np
import pytest

from jaxsparse.select.cover import CoverTile, cover, least_cover


@pytest.mark.parametrize("block", [(1, 1), (32, 1), (5, 7), (8, 64)])
@pytest.mark.parametrize("rows", [1, 6, 64, 200])
def test_cover_counts_the_columns_of_every_strip(rng, block, rows):
    size = (70, 90)
    mask = rng.random([-(-n // g) for n, g in zip(size, block, strict=True)]) < 0.2
    entries = np.repeat(np.repeat(mask, block[0], 0), block[1], 1)[: size[0], : size[1]]
    want = sum(int(entries[i : i + rows].any(axis=0).sum()) for i in range(0, size[0], rows))
    assert cover(mask, block, size, rows) == want


def test_sparse_masks_take_short_tiles_and_dense_ones_tall_tiles(rng):
    size, block = (512, 512), (32, 1)
    tiles = [CoverTile("short", 64, 1.0), CoverTile("tall", 128, 1.4)]
    masks = {d: [rng.random((16, 512)) < d for _ in range(3)] for d in (0.05, 0.9)}
    assert least_cover(masks[0.05], tiles, block, size).name == "short"
    assert least_cover(masks[0.9], tiles, block, size).name == "tall"


def test_bad_input_is_named():
    with pytest.raises(ValueError, match="mask has shape"):
        cover(np.ones((2, 2)), (4, 4), (8, 9), 4)
    with pytest.raises(ValueError, match="tiles is empty"):
        least_cover([np.ones((2, 2))], [], (4, 4), (8, 8))
