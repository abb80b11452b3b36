"""Find the text on a screen that changes a little: a trained detector, computed where it changes.

PP-OCRv4's detector (Apache-2.0) from the wheel of rapidocr-onnxruntime, its weights read by onnx,
beside onnxruntime. Needs the extra `networks`. `python examples/text_detector.py [--quick]
[--frames N] [--threshold T] [--refresh N] [--out DIR]`.
"""

import functools
import statistics
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import onnx

from models.common import (
    console,
    grid_figure,
    overlay,
    package_file,
    parser,
    print_table,
    progress,
    save,
    working,
)
from models.detector.cached import Plan, State, plan, refresh, step
from models.detector.graph import Values, evaluate, fold, params_of, read
from models.detector.screen import MEAN, SPREAD, Screen, boxes, normalised, overlap, rgb

FILE = "ch_PP-OCRv4_det_infer.onnx"
# Of a probability. At 544x960 onnxruntime is 6e-4 from float64, and the network here 3e-5.
TOLERANCE = 5e-3
LEGEND = (
    "a frame: from the screen's pixels to the probabilities. onnxruntime and XLA are given "
    "normalised floats; jaxsparse finds what changed, and normalises that.\n"
    "Speed-up: of one frame over onnxruntime on as many threads; medians of calls in turn."
)


class Result(NamedTuple):
    """Greatest differences of probabilities from onnxruntime (whole, and of a frame), boxes of
    onnxruntime that are not found, boxes in all, milliseconds by form, and the picture.
    """

    whole_error: float
    frame_error: float
    missing: int
    boxes: int
    times: dict[str, float]
    picture: Path


def model_path() -> Path:
    """The detector's file, found without importing the package.

    Raises:
        ImportError: the package is not installed.
    """
    project = "rapidocr-onnxruntime"
    return package_file("rapidocr_onnxruntime", f"models/{FILE}", project, "networks")


def unpack(frame: jax.Array) -> jax.Array:
    """f32[1,H,W,3], normalised as the detector was trained, of a frame uint32[1,H,W]."""
    channels = jnp.stack([(frame >> shift) & 255 for shift in (0, 8, 16)], -1)
    return (channels.astype(jnp.float32) / 255 - MEAN) / SPREAD


def other_runtime(path: Path) -> Callable[[np.ndarray], np.ndarray]:
    """onnxruntime on all threads of this process: probabilities f32[H,W] of f32[1,3,H,W]."""
    import os

    import onnxruntime

    chosen = onnxruntime.SessionOptions()
    chosen.intra_op_num_threads = len(os.sched_getaffinity(0))
    session = onnxruntime.InferenceSession(str(path), chosen, ["CPUExecutionProvider"])
    name = session.get_inputs()[0].name
    return lambda x: np.asarray(session.run(None, {name: x})[0])[0, 0]


def factors_moved(made: Plan, now: State, held: Values) -> float:
    """The greatest difference of a factor of channels (0 to 1) from the one that is held."""
    names = [n.output for n in made.graph.nodes if n.op == "HardSigmoid" and n.output in made.held]
    gaps = [jnp.abs(now.held[name] - held[name]).max() for name in names]
    return max((float(gap) for gap in gaps), default=0.0)


def timed(taken: dict[str, list[float]], name: str, call: Callable[[], Any]) -> Any:
    """The call's result, waited for; its milliseconds go to `taken`."""
    start = time.perf_counter()
    result = jax.block_until_ready(call())
    taken.setdefault(name, []).append(1e3 * (time.perf_counter() - start))
    return result


def run(quick: bool, out: Path, frames: int, threshold: float, every: int) -> Result:
    """The demo; raises AssertionError when the whole network differs from onnxruntime's, or a
    frame loses a box.
    """
    height, width = (320, 640) if quick else (1088, 1920)
    screen, path = Screen(height, width), model_path()
    made = plan(fold(read(onnx.load(path))))
    params, output = params_of(made.graph), made.graph.output
    other = other_runtime(path)
    whole = jax.jit(lambda params, frame: refresh(made, params, frame, unpack, threshold))
    again = jax.jit(  # in the memory of the state before
        lambda state, params, frame: refresh(made, params, frame, unpack, threshold),
        donate_argnums=0,
        keep_unused=True,
    )
    onward = jax.jit(
        lambda state, params, frame: step(state, made, params, frame, unpack), donate_argnums=0
    )
    dense = jax.jit(lambda params, x: evaluate(made.graph, params, x)[output])
    console.print(f"screen {height}x{width}, {len(made.stored)} stored tensors")
    frame = screen.frame()
    with working("compiling, and checking the whole network against onnxruntime"):
        state = whole(params, frame)
        expected = other(normalised(frame))
        error = float(np.abs(np.asarray(state.values[output])[0, ..., 0] - expected).max())
        assert error <= TOLERANCE, f"the whole network differs from onnxruntime by {error}"
        state = again(state, params, frame)
        state, _ = onward(state, params, frame)
        image = jnp.asarray(normalised(frame).transpose(0, 2, 3, 1))
        jax.block_until_ready(dense(params, image))
    taken: dict[str, list[float]] = {}
    frame_error, moved, missing, count, least, same = 0.0, 0.0, 0, 0, 1.0, 0
    shares = []
    with progress() as bar:
        task = bar.add_task("frames", total=frames)
        for number in range(1, frames + 1):
            before, frame = frame, screen.next()
            given = normalised(frame)
            expected = timed(taken, "onnxruntime", functools.partial(other, given))
            step_now = functools.partial(onward, state, params, frame)
            state, masks = timed(taken, "step", step_now)
            got = np.asarray(state.values[output])[0, ..., 0]
            frame_error = max(frame_error, float(np.abs(got - expected).max()))
            wanted, found = boxes(expected), boxes(got)
            lost, share = overlap(wanted, found)
            added, _ = overlap(found, wanted)
            missing, count, least = missing + lost + added, count + len(wanted), min(least, share)
            same += int(np.array_equal(wanted, found))
            shares.append([float(masks[name].mean()) for name in made.stored])
            if number % every == 0 or number == frames:
                image = jnp.asarray(given.transpose(0, 2, 3, 1))
                jax.block_until_ready(dense(params, image))  # its memory is there from then on
                timed(taken, "dense", functools.partial(dense, params, image))
                held, last = jax.tree.map(jnp.copy, (state.held, state.values[output]))
                refresh_now = functools.partial(again, state, params, frame)
                state = timed(taken, "whole", refresh_now)
                moved = max(moved, factors_moved(made, state, held))
                idle_now = functools.partial(onward, state, params, frame)
                state, _ = timed(taken, "idle", idle_now)
            bar.advance(task)
    times = {name: statistics.median(each) for name, each in taken.items()}
    times["mean"] = times["step"] + times["whole"] / every
    names = {
        "onnxruntime": "onnxruntime",
        "dense": "whole network, XLA",
        "whole": "whole network, jaxsparse's convolutions (a refresh)",
        "idle": "a frame without a change",
        "step": "a frame",
        "mean": f"a frame and its part of a refresh every {every}",
    }
    rows = [[title, f"{times[k]:.1f}", _ratio(times, k)] for k, title in names.items()]
    print_table(f"Text on a screen, {frames} frames", ["form", "ms", "speed-up"], rows, LEGEND)
    console.print(
        f"changed: {100 * statistics.mean(s[0] for s in shares):.2f} % of the pixels; most of a "
        f"layer computed: {100 * max(statistics.mean(s) for s in zip(*shares, strict=True)):.1f} %"
        f"\nwhole network: at most {error:.1e} from onnxruntime; a frame at most "
        f"{frame_error:.2f}, factors of channels {moved:.1e} from a refresh"
        f"\nboxes: {count} in {frames} frames, {missing} lost or added; {same} frames have the "
        f"same to the pixel, elsewhere two overlap by {least:.2f} or more"
    )
    assert missing == 0, f"{missing} boxes are lost or added"
    mask = before[0] != frame[0]
    picture = save(_draw(rgb(frame), mask, masks, made, last), out, "text_detector.png")
    return Result(error, frame_error, missing, count, times, picture)


def _ratio(times: dict[str, float], name: str) -> str:
    return f"{times['onnxruntime'] / times[name]:.2f}x"


def _draw(image: np.ndarray, changed: np.ndarray, masks: Any, made: Plan, last: Any) -> Any:
    """The changed pixels; what is computed where it is most; the boxes."""
    convs = [name for name in made.stored[1:] if made.makers[name].op == "Conv"]
    most = max(convs, key=lambda name: float(masks[name].mean()))
    figure, axes = grid_figure(1, 3, 15, 3.6)
    shown = image.astype(np.float32) / 255
    titles = "orange = changed", "orange = computed, in the layer with the most", "boxes"
    panels = overlay(shown, changed), overlay(shown, np.asarray(masks[most][0])), shown.copy()
    for y, x, bottom, right in boxes(np.asarray(last)[0, ..., 0]):
        for line in (np.s_[y:bottom, [x, right - 1]], np.s_[[y, bottom - 1], x:right]):
            panels[2][line] = (0.9, 0.2, 0.1)
    for each, title, panel in zip(axes.flat, titles, panels, strict=True):
        each.imshow(panel)
        each.set_title(title, fontsize=9)
    return figure


def main(argv: Sequence[str] | None = None) -> Result:
    """The command line."""
    made = parser(__doc__ or "")
    made.add_argument("--frames", type=int, default=30, metavar="N", help="default: 30")
    helped = "of a tensor's standard deviation, under which a change is dropped (default: 0.02)"
    made.add_argument("--threshold", type=float, default=0.02, metavar="T", help=helped)
    helped = "compute all of the network every N frames (default: 15)"
    made.add_argument("--refresh", type=int, default=15, metavar="N", help=helped)
    chosen = made.parse_args(argv)
    for name in ("frames", "refresh"):
        if getattr(chosen, name) < 1:
            made.error(f"--{name} is {getattr(chosen, name)}; it is 1 or more")
    every = min(chosen.refresh, chosen.frames)
    return run(chosen.quick, chosen.out, chosen.frames, chosen.threshold, every)


if __name__ == "__main__":
    main()
