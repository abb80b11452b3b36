"""Draws the pictures of docs/tasks: `python docs/pictures.py` writes docs/pictures/*.png.

Every picture shows what the package and the examples return for fixed seeds.
"""

import io
import sys
from collections.abc import Callable
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.figure import Figure
from PIL import Image

import jaxsparse as js

HERE = Path(__file__).resolve().parent
OUT = HERE / "pictures"
sys.path.insert(0, str(HERE.parent / "examples"))
ACCENT = "#e07b39"


def figure(columns: int, width: float, height: float) -> tuple[Figure, list]:
    """A figure with a row of axes without ticks."""
    made = Figure(figsize=(width, height), layout="constrained")
    axes = np.atleast_1d(made.subplots(1, columns)).tolist()
    for each in axes:
        each.set(xticks=[], yticks=[])
    return made, axes


def images() -> Figure:
    """An edited photograph: the edit, what it reaches, and the tiles that are computed."""
    import edit_photo

    from models import edit_network

    photo = edit_photo.load_photo(quick=False)
    region = edit_photo.disc(photo.shape[:2])
    edited = edit_photo.recolour(photo, region, 0.33)
    _, half = jax.jit(edit_network.shared_masks)(jnp.asarray(region)[None])
    index = js.tile_index(half, (8, 8))
    made, axes = figure(3, 9, 2.3)
    reached = np.asarray(half[0])
    axes[0].imshow(edited[::3, ::3])
    axes[0].set_title("the edited photograph", fontsize=9)
    axes[1].imshow(reached, cmap="Blues", vmax=1.6)
    axes[1].set_title(f"mask at half resolution: {100 * reached.mean():.0f} %", fontsize=9)
    axes[2].imshow(np.asarray(index.tile_mask()[0]), cmap="Blues", vmax=1.6)
    axes[2].set_title(f"{int(index.count)} of {index.n_tiles} tiles of 8x8 pixels", fontsize=9)
    return made


def moe() -> Figure:
    """Assignments of tokens to experts, in the order of tokens and in the order of `js.route`."""
    tokens, experts, top_k = 64, 8, 2
    popular = np.linspace(1.5, 0, experts)
    logits = np.random.default_rng(0).gumbel(size=(tokens, experts)) + popular
    _, ids = jax.lax.top_k(jnp.asarray(logits), top_k)
    to = js.route(ids, experts)
    made, axes = figure(2, 9, 2.3)
    flat = np.asarray(ids).ravel()
    for axis, order, title in (
        (axes[0], np.arange(flat.size), "assignments in the order of the tokens"),
        (axes[1], np.asarray(to.order), "in the order of js.route: a group of rows an expert"),
    ):
        grid = np.arange(experts)[:, None] == flat[order][None]
        axis.imshow(grid, cmap="Blues", aspect="auto", interpolation="nearest", vmax=1.3)
        axis.set_title(title, fontsize=9)
        axis.set(xlabel="assignment", ylabel="expert")
    for edge in np.cumsum(np.asarray(to.group_sizes))[:-1]:
        axes[1].axvline(edge - 0.5, color=ACCENT, linewidth=0.8)
    return made


def ragged() -> Figure:
    """A padded batch, and its tokens side by side."""
    n = 64
    lengths = np.random.default_rng(1).gamma(3, 8, 12).astype(int).clip(4, n)
    mask = js.lengths_mask(jnp.asarray(lengths), n)
    index = js.token_index(mask)
    capacity = -(-int(index.count) // n) * n
    rows = np.asarray(index.ids[:capacity])
    text = np.where(np.asarray(mask), np.arange(len(lengths))[:, None] % 2 + 1, 0)
    packed = np.where(rows < 0, 0, text.ravel()[rows]).reshape(-1, n)
    made, axes = figure(2, 9, 2.1)
    share = 100 * lengths.sum() / mask.size
    for axis, drawn, title in (
        (axes[0], text, f"padded: {share:.0f} % of {mask.size} places hold a token"),
        (axes[1], packed, f"packed: the same tokens in {capacity} rows"),
    ):
        axis.imshow(drawn, cmap="Blues", vmin=0, vmax=2.6, aspect="auto", interpolation="nearest")
        axis.set_title(title, fontsize=9)
        axis.set(xlabel="place")
    axes[0].set(ylabel="sequence")
    return made


def pruned() -> Figure:
    """Kept weights of a layer: single ones, and vectors of eight outputs."""
    weight = np.random.default_rng(0).standard_normal((64, 128)).astype(np.float32)
    weight *= np.random.default_rng(1).gamma(2, 1, 128).astype(np.float32)
    made, axes = figure(2, 9, 2.6)
    for axis, block, title in (
        (axes[0], (1, 1), "90 % pruned, single weights"),
        (axes[1], (1, 8), "90 % pruned, vectors of 8 outputs"),
    ):
        plan = js.pruned.inspect(weight, mask=js.prune.magnitude(weight, 0.9, block))
        axis.imshow(
            np.asarray(plan.to_dense()) != 0,
            cmap="Blues",
            vmax=1.3,
            interpolation="nearest",
            aspect="auto",
        )
        fill = js.pruned.statistics(plan).vector_fill
        axis.set_title(f"{title} (vectors {100 * fill:.0f} % full)", fontsize=9)
        axis.set(xlabel="output", ylabel="input")
    return made


def saturated() -> Figure:
    """The states of some images behind each layer of a radix network, as a recorder has them."""
    images, layers = 120, 32
    acts = js.bounded.Activations.plain(
        jnp.asarray(js.bounded.challenge_inputs(js.bounded.strokes(images), 1024))
    )
    step = jax.jit(lambda acts, layer: js.bounded_matmul(acts, layer, segment=1024))
    states = []
    for layer in js.bounded.radixnet(1024, layers):
        acts = step(acts, layer)
        states.append(np.asarray(acts.recorder.codes[:, 0]))
    grid = np.stack(states, 1)
    made, (axis,) = figure(1, 9, 2.6)
    axis.imshow(
        grid[np.lexsort(grid.T[::-1])],
        cmap="Blues",
        vmax=2.4,
        interpolation="nearest",
        aspect="auto",
    )
    axis.set(xlabel="layer", ylabel="image", xticks=range(0, layers, 4))
    axis.set_title("white: undecided; light: all zero; dark: all at the bound", fontsize=9)
    return made


def sparse_training() -> Figure:
    """The mask of a weight at three points of a pruning schedule."""
    from models.sparse_training import magnitude_mask

    rng = np.random.default_rng(0)
    scale = rng.gamma(1.5, 1, (32, 1, 16, 1))
    weight = (rng.standard_normal((32, 32, 16, 64)) * scale).reshape(1024, 1024)
    made, axes = figure(3, 9, 3)
    for axis, sparsity in zip(axes, (0.5, 0.75, 0.9), strict=True):
        mask = magnitude_mask(jnp.asarray(weight, jnp.float32), jnp.float32(sparsity), (32, 64))
        axis.imshow(np.asarray(mask), cmap="Blues", vmax=1.3, extent=(0, 1024, 1024, 0))
        axis.set_title(f"{100 * sparsity:.0f} % of the blocks left out", fontsize=9)
    return made


def attention() -> Figure:
    """Three masks of attention in blocks; full blocks are dark, partial ones pale."""
    n, size = 1024, 32
    window = js.block_masks.sliding_window(n, block_size=size, left=96, right=96)
    ends = jnp.asarray([0, 200, 520, 610, n])
    scores = np.random.default_rng(0).gumbel(size=(1, 1, n // size, n // size)).astype(np.float32)
    made, axes = figure(3, 9, 3.1)
    for axis, mask, title in (
        (axes[0], window | js.block_masks.global_tokens(jnp.asarray([5, 600]), n, size), "window"),
        (axes[1], js.block_masks.document(ends, n, size, causal=True), "documents"),
        (axes[2], js.block_masks.top_k_blocks(scores, 6, size, n, n, causal=True), "best blocks"),
    ):
        share = np.full((n // size, n // size), np.nan)
        share[np.asarray(mask.block_bits()[0, 0])] = 0.35
        share[np.asarray(mask.full_block_bits()[0, 0])] = 0.75
        axis.imshow(share, cmap="Oranges", vmin=0, vmax=1, interpolation="nearest")
        axis.set_title(f"{title}: {100 * float(mask.sparsity()):.0f} % left out", fontsize=9)
        axis.set(xlabel="blocks of keys", ylabel="blocks of queries")
    return made


def tuning() -> Figure:
    """The tiles of an index over a photograph: where its brightness changes."""
    import edit_photo

    photo = edit_photo.load_photo(quick=False)[::2, ::2]
    grey = photo.mean(-1)
    slope = np.abs(np.diff(grey, axis=0, append=0)) + np.abs(np.diff(grey, axis=1, append=0))
    index = js.tile_index(jnp.asarray(slope > 0.25)[None], (8, 8))
    return js.plot(index, photo)


PICTURES: tuple[Callable[[], Figure], ...] = (
    images,
    moe,
    ragged,
    pruned,
    saturated,
    sparse_training,
    attention,
    tuning,
)


def main() -> None:
    """Write every picture."""
    OUT.mkdir(exist_ok=True)
    for draw in PICTURES:
        path = OUT / f"{draw.__name__}.png"
        drawn = io.BytesIO()
        draw().savefig(drawn, dpi=96)
        Image.open(drawn).convert("RGB").quantize(48).save(path, optimize=True)
        print(f"{path.relative_to(HERE.parent)}: {path.stat().st_size / 1024:.1f} KB")


if __name__ == "__main__":
    main()
