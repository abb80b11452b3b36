"""Edit a region of a photograph: a residual network then computes only what the edit can reach.

The activations of the photograph before the edit are the `base` of every convolution, one tile
index serves all layers of a resolution, and the result equals the dense one.
"""

import functools
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_sample_images

import jaxsparse as js
from models.common import (
    FORM_TITLES,
    FORMS,
    carried,
    console,
    grid_figure,
    options,
    outline_tiles,
    overlay,
    print_table,
    progress,
    rest_row,
    save,
    time_together,
    times_row,
    working,
)
from models.edit_network import (
    LAYERS,
    TILE,
    Layer,
    dense_conv,
    edit_pass,
    first_pass,
    make_params,
    multiplied_conv,
    reached,
    shared_masks,
    sparse_conv,
)

TOLERANCE = 1e-4
LEGEND = (
    "reached: pixels of the layer's result that the edit can change. computed: pixels that are "
    "computed; the layers of a resolution share the widest mask.\n"
    "A layer's time is of one layer, alone; indices, masks, additions: the whole network less its "
    "layers (below zero where layers alone take longer than within the network)."
)


class Result(NamedTuple):
    """Greatest differences from dense, the table's rows, milliseconds, and the picture."""

    sparse_error: float
    multiplied_error: float
    rows: list[list[str]]
    times: dict[str, float]
    picture: Path


def load_photo(quick: bool) -> np.ndarray:
    """china.jpg of scikit-learn, cropped: f32[416,640,3] in [0,1]; quick: every fourth pixel."""
    photo = load_sample_images().images[0][:416, :640].astype(np.float32) / 255
    return photo[::4, ::4] if quick else photo


def disc(shape: tuple[int, int]) -> np.ndarray:
    """The region of the edit, bool[H,W]."""
    height, width = shape
    y, x = np.mgrid[:height, :width]
    return (y - 0.5 * height) ** 2 + (x - 0.42 * width) ** 2 < (0.15 * height) ** 2


def recolour(photo: np.ndarray, region: np.ndarray, turn: float) -> np.ndarray:
    """The photo, its region's colours turned around the grey axis by `turn` (a circle is 1)."""
    angle = 2 * np.pi * (turn + np.arange(3)[:, None] / 3 - np.arange(3) / 3)
    matrix = (1 + 2 * np.cos(angle)) / 3
    turned = np.clip(photo @ matrix.astype(np.float32), 0, 1)
    return np.where(region[..., None], turned, photo)


def time_layer(layer: Layer, params: Any, mask: jax.Array, repeats: int) -> dict[str, float]:
    """Milliseconds of one layer in the three forms, its `base` updated in place."""
    size = [n * layer.stride for n in mask.shape[1:]]
    x = jnp.ones((1, *size, layer.channels), jnp.float32)
    base = jnp.zeros((*mask.shape, layer.outputs), jnp.float32)
    skip = base + 1 if layer.closes else None
    index = jax.jit(js.tile_index, static_argnums=1)(mask, TILE)

    def masked(form: Any) -> Any:
        def function(base: jax.Array, kernel: Any, bias: Any, x: Any, active: Any) -> jax.Array:
            return form(layer, kernel, bias, x, active, base, skip)

        return jax.jit(function, donate_argnums=0)

    calls = {
        "dense": functools.partial(
            jax.jit(functools.partial(dense_conv, layer, skip=skip)), *params, x
        ),
        "multiplied": carried(masked(multiplied_conv), base, *params, x, mask),
        "sparse": carried(masked(sparse_conv), base + 0, *params, x, index),
    }
    return time_together(calls, repeats)


def layer_rows(
    params: Any, masks: list[jax.Array], shared: list[jax.Array], repeats: int
) -> tuple[list[list[str]], list[tuple[int, dict[str, float]]]]:
    """A row for each kind of layer; how many there are of it, and the milliseconds of one."""
    kinds = list(dict.fromkeys(layer.name for layer in LAYERS))
    rows, parts = [], []
    with progress() as bar:
        task = bar.add_task("timing each layer", total=len(kinds))
        for kind in kinds:
            members = [i for i, layer in enumerate(LAYERS) if layer.name == kind]
            layer, mask = LAYERS[members[-1]], shared[LAYERS[members[-1]].stage]
            times = time_layer(layer, params[members[-1]], mask, repeats)
            shape = f"{mask.shape[1]}x{mask.shape[2]}x{layer.outputs}"
            name = kind if len(members) == 1 else f"{kind},\neach of {len(members)}"
            rows.append([name, shape, _range([masks[i] for i in members]), _range([mask])])
            rows[-1] += times_row(times)
            parts.append((len(members), times))
            bar.advance(task)
    return rows, parts


def _range(masks: list[jax.Array]) -> str:
    shares = [f"{100 * float(m.mean()):.1f}" for m in masks]
    return shares[0] if shares[0] == shares[-1] else f"{shares[0]}-{shares[-1]}"


def to_unit(image: np.ndarray) -> np.ndarray:
    """Each channel of [H,W,C] scaled to [0,1] for display; the outermost hundredths are clipped."""
    low, high = np.percentile(image, (1, 99), axis=(0, 1))
    return np.clip((image - low) / np.maximum(high - low, 1e-6), 0, 1)


def draw(photo: np.ndarray, edit: np.ndarray, result: np.ndarray, shared: list[jax.Array]) -> Any:
    """Photo, edit, result; what is computed at each resolution; the tiles at the mask's border."""
    index = js.tile_index(shared[-1], TILE)
    figure, axes = grid_figure(2, 3, 13, 6.4)
    full, half = (np.asarray(mask[0]) for mask in shared)
    shown = to_unit(result)
    panels = [
        ("photograph", photo),
        ("edit: a disc, recoloured", edit),
        ("output of a network with random weights,\neach channel scaled to [0, 1]", shown),
        (
            f"orange = computed again, full resolution: {100 * full.mean():.1f} %",
            overlay(edit, full),
        ),
        (
            f"orange = computed again, half resolution: {100 * half.mean():.1f} %",
            overlay(edit, half),
        ),
        (
            f"blue = its tiles ({index.tile[0]}x{index.tile[1]}), at the border",
            overlay(edit, half, 0.3),
        ),
    ]
    for each, (title, image) in zip(axes.flat, panels, strict=True):
        each.imshow(image)
        each.set_title(title, fontsize=9)
    outline_tiles(axes[1, 2], np.asarray(index.tile_mask()[0]), index.tile, 2)
    top, left = (2 * int(n.min()) for n in np.nonzero(half))
    size = min(36, *photo.shape[:2])
    axes[1, 2].set(xlim=(left, left + 2 * size), ylim=(top + size, top))
    return figure


def run(quick: bool, out: Path) -> Result:
    """The demo; raises AssertionError when a form differs from dense."""
    photo = load_photo(quick)
    region = disc(photo.shape[:2])
    edits = [jnp.asarray(recolour(photo, region, t))[None] for t in (0.33, 0.5, 0.66)]
    edited = jnp.asarray(region)[None]
    params = make_params()
    dense = jax.jit(lambda params, photo: first_pass(params, photo)[0])
    passes = {
        form: jax.jit(functools.partial(edit_pass, form=form), donate_argnums=0)
        for form in ("multiplied", "sparse")
    }
    console.print(f"photo {photo.shape[0]}x{photo.shape[1]}, {len(LAYERS)} convolutions of 3x3")
    before = jax.jit(first_pass)
    errors, results = {}, {}
    with working("compiling, and checking each form against dense"):
        expected = dense(params, edits[0])
        for form, edit in passes.items():
            state = edit(before(params, jnp.asarray(photo)[None]), params, edits[0], edited)
            errors[form] = float(jnp.abs(state[0] - expected).max())
            assert errors[form] <= TOLERANCE, f"{form} differs from dense by {errors[form]}"
            results[form] = state
        image = np.asarray(results["sparse"][0][0])
        masks, shared = jax.jit(reached)(edited), jax.jit(shared_masks)(edited)
    rows, parts = layer_rows(params, masks, shared, 2 if quick else 5)
    turn = dict.fromkeys(FORMS, 0)

    def step(form: str) -> Any:
        turn[form] += 1
        edit = edits[turn[form] % len(edits)]
        if form == "dense":
            return dense(params, edit)
        results[form] = passes[form](results[form], params, edit, edited)
        return results[form]

    repeats = 2 if quick else 7
    with progress() as bar:
        task = bar.add_task("timing the network", total=repeats)
        calls = {form: functools.partial(step, form) for form in turn}
        times = time_together(calls, repeats, lambda: bar.advance(task))
    rows.append(["indices, masks,\nadditions", "", "", "", *rest_row(times, parts)])
    rows.append(["whole network", "", "", "", *times_row(times)])
    final = dense(params, edits[turn["sparse"] % len(edits)])
    errors["sparse"] = max(errors["sparse"], float(jnp.abs(results["sparse"][0] - final).max()))
    assert errors["sparse"] <= TOLERANCE, f"after edits, sparse differs by {errors['sparse']}"
    columns = ["layer", "result", "reached\n[%]", "computed\n[%]", *FORM_TITLES]
    print_table(f"An edit of {100 * region.mean():.1f} % of a photograph", columns, rows, LEGEND)
    console.print(
        f"greatest difference from dense: {errors['sparse']:.1e} (tolerance {TOLERANCE:.0e}), "
        f"after {turn['sparse'] + 1} edits in turn, each on the activations the one before left"
    )
    picture = save(draw(photo, np.asarray(edits[0][0]), image, shared), out, "edit_photo.png")
    return Result(errors["sparse"], errors["multiplied"], rows, times, picture)


def main(argv: Sequence[str] | None = None) -> Result:
    """The command line."""
    chosen = options(__doc__ or "", argv)
    return run(chosen.quick, chosen.out)


if __name__ == "__main__":
    main()
