"""Train a vision transformer whose tokens halt (A-ViT) on digits on cluttered canvases, then run it
with the tokens that are left packed between layers, on the device.

The dense network is trained first; halting is learned from there, with a penalty that pulls the
share of tokens that layers compute to a half. Then the same weights run dense, masked and packed,
at the learned depths and at curves whose mean over the layers is that of DynaSpa 5.2 (.5 and .3).
The paper shows A-ViT's curve falling with depth (Figure 13) but gives the means only; here each
layer keeps the same share of the tokens of the layer before.

`python examples/halting_vit.py [--quick] [--sizes tiny S B] [--batch N] [--dtype bfloat16]
[--steps DENSE HALTING]`.
Sizes S and B have random weights and 224x224 canvases; the learned curve is that of "tiny".
"""

import functools
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import models.halting as model
from models.canvases import Canvases
from models.common import (
    console,
    grid_figure,
    parser,
    print_table,
    progress,
    save,
    time_together,
    working,
)
from models.halting import CONFIGS, FORMS, Config, Params

MEANS = (0.5, 0.3)
TARGET = 0.5
PENALTY = 4.0
BATCH = 64
DENSE_STEPS, HALTING_STEPS = 700, 400
ADAM = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam())
LEGEND = (
    "share: of the tokens that a layer computes, mean over the layers. Times are medians of calls "
    "of the three forms in turns. Memory is what XLA allocates beside arguments and results; the "
    "working memory of jaxsparse's CPU kernels is not in it."
)


class Row(NamedTuple):
    """One network at one curve: the share computed, milliseconds and MB by form."""

    size: str
    curve: str
    share: float
    times: dict[str, float]
    memory: dict[str, float]


class Result(NamedTuple):
    """What the demo found. Accuracies by form; `different`: predictions of packed and masked that
    are not equal; `error`: largest difference of their logits over the largest logit.
    """

    accuracy: dict[str, float]
    different: int
    error: float
    shares: np.ndarray
    rows: list[Row]
    picture: Path


def curve(mean: float, layers: int) -> np.ndarray:
    """Shares f64[layers] that fall by one factor from 1, with this mean over the layers."""
    low, high = 0.0, 1.0
    for _ in range(60):
        middle = (low + high) / 2
        below = (middle ** np.arange(layers)).mean() < mean
        low, high = (middle, high) if below else (low, middle)
    return low ** np.arange(layers)


def drawn_depths(shares: np.ndarray, shape: tuple[int, int], seed: int = 0) -> np.ndarray:
    """Depths int32[B,T] with these shares of the tokens in each layer; the first token stays."""
    uniform = np.random.default_rng(seed).random(shape)
    depths = (uniform[..., None] < shares).sum(-1).astype(np.int32)
    depths[:, 0] = len(shares)
    return depths


def loss_of(
    config: Config, halting: bool, params: Params, images: jax.Array, labels: jax.Array
) -> jax.Array:
    """Cross-entropy, with halting plus the penalty on the share of tokens computed."""
    found = model.in_rows(config, params, images, halting=halting, training=True)
    entropy = optax.softmax_cross_entropy_with_integer_labels(found.logits, labels).mean()
    return entropy + (PENALTY * (found.shares.mean() - TARGET) ** 2 if halting else 0)


@functools.cache
def train_step(config: Config, halting: bool) -> Callable[..., Any]:
    """One step of Adam: (params, state, images, labels, rate) -> (params, state, loss)."""
    loss = functools.partial(loss_of, config, halting)

    @jax.jit
    def step(
        params: Params, state: Any, images: jax.Array, labels: jax.Array, rate: jax.Array
    ) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, images, labels)
        updates, state = ADAM.update(gradient, state, params)
        updates = jax.tree.map(lambda u: -rate * u, updates)
        return optax.apply_updates(params, updates), state, value

    return step


def train(
    config: Config, params: Params, canvases: Canvases, steps: int, halting: bool, seed: int
) -> Params:
    """`steps` batches; the rate rises for a tenth of them and then falls to 0."""
    peak = 1e-3 if halting else 2e-3
    rates = optax.warmup_cosine_decay_schedule(0.0, peak, max(1, steps // 10), max(2, steps))
    step, state, rng = train_step(config, halting), ADAM.init(params), np.random.default_rng(seed)
    name, value = "halting" if halting else "dense", np.nan
    with progress() as bar:
        task = bar.add_task(f"training, {name}", total=steps)
        for i in range(steps):
            images, labels = canvases.batch("train", BATCH, rng)
            rate = jnp.float32(rates(i))
            params, state, value = step(params, state, images, labels, rate)
            if i % 20 == 19:
                bar.update(task, description=f"training, {name}: loss {float(value):.3f}")
            bar.advance(task)
    console.print(f"trained {name}, {steps} steps: loss {float(value):.3f}")
    return params


def forms_of(config: Config) -> dict[str, Callable[..., Any]]:
    """The jitted network in each form: (params, images, depths=None) -> Halted."""
    return {form: jax.jit(functools.partial(model.run, config, form)) for form in FORMS}


def tested(
    calls: dict[str, Callable[..., Any]], weights: dict[str, Params], images: np.ndarray
) -> dict[str, model.Halted]:
    """Each form's results for all test images, with its own weights."""
    found = {}
    for form, call in calls.items():
        parts = [call(weights[form], images[i : i + BATCH]) for i in range(0, len(images), BATCH)]
        logits, depths = (np.concatenate([p[k] for p in parts]) for k in (0, 1))
        found[form] = model.Halted(logits, depths, parts[0].shares)
    return found


def timed(
    size: str,
    config: Config,
    params: Params,
    images: np.ndarray,
    curves: dict[str, np.ndarray | None],
    dtype: str,
    repeats: int,
) -> list[Row]:
    """Rows of one network at curves f64[layers]; None: where its own scores halt."""
    cast = jax.tree.map(lambda v: v.astype(dtype), params)
    given = jnp.asarray(images, dtype)
    rows, compiled = [], {}
    for name, shares in curves.items():
        shape, learned = (len(images), config.tokens), shares is None
        depths = None if shares is None else jnp.asarray(drawn_depths(shares, shape))
        args = cast, given, depths
        if learned not in compiled:
            found = forms_of(config).items()
            compiled[learned] = {form: call.lower(*args).compile() for form, call in found}
        calls = compiled[learned]
        stats = {form: call.memory_analysis() for form, call in calls.items()}
        memory = {form: stat.temp_size_in_bytes / 2**20 for form, stat in stats.items()}
        counts = calls["packed"](*args).depths
        share = float(counts.mean()) / config.layers
        times = time_together(
            {form: functools.partial(call, *args) for form, call in calls.items()}, repeats
        )
        rows.append(Row(f"{size}, batch {len(images)}", name, share, times, memory))
    return rows


def cells(row: Row) -> list[str]:
    """Of the table."""
    ours = row.times["packed"]
    return [
        row.size,
        row.curve,
        f"{row.share:.2f}",
        *(f"{row.times[form]:.1f}" for form in FORMS),
        *(f"{row.times[form] / ours:.2f}x" for form in FORMS[:2]),
        *(f"{row.memory[form]:.0f}" for form in ("masked", "packed")),
    ]


def draw(
    config: Config, images: np.ndarray, labels: np.ndarray, predicted: np.ndarray, depths: Any
) -> Any:
    """Canvases, and over them how many layers computed each piece."""
    count, side = min(6, len(images)), int(np.sqrt(config.tokens - 1))
    figure, axes = grid_figure(2, count, 1.9 * count, 4.8)
    for i in range(count):
        axes[0, i].imshow(images[i])
        axes[0, i].set_title(f"{labels[i]}, predicted {predicted[i]}", fontsize=9)
        shown = np.asarray(depths[i, 1:]).reshape(side, side)
        wide = np.kron(shown, np.ones((config.side // side,) * 2))
        axes[1, i].imshow(images[i].mean(-1), cmap="gray")
        drawn = axes[1, i].imshow(wide, cmap="inferno", alpha=0.6, vmin=1, vmax=config.layers)
        axes[1, i].set_title(f"mean depth {shown.mean():.1f}", fontsize=9)
    figure.colorbar(drawn, ax=list(axes[1]), label="layers")
    return figure


def learned_for(layers: int, shares: np.ndarray) -> np.ndarray:
    """The learned shares at the same relative depth of a network of so many layers."""
    places = np.arange(layers) * len(shares) / layers
    return np.interp(places, np.arange(len(shares)), shares)


def run(
    quick: bool,
    out: Path,
    sizes: Sequence[str] = ("tiny", "S"),
    batch: int | None = None,
    dtype: str = "float32",
    trained: tuple[int, int] = (DENSE_STEPS, HALTING_STEPS),
) -> Result:
    """The demo; `trained`: steps without halting, and steps with it.

    Raises:
        AssertionError: when packed and masked halt or predict differently.
    """
    configs = CONFIGS
    if quick:
        configs = {size: config._replace(layers=3) for size, config in CONFIGS.items()}
    config = configs["tiny"]
    canvases = Canvases(config.side)
    dense_steps, steps, tests = (6, 4, 64) if quick else (*trained, 1024)
    console.print(
        f"{canvases.name} on photographs; {dense_steps} dense steps, {steps} with halting"
    )
    params = train(config, model.initial(config), canvases, dense_steps, False, 0)
    halting = train(config, params, canvases, steps, True, 1)
    longer = train(config, params, canvases, steps, False, 1)
    images, labels = canvases.batch("test", tests, np.random.default_rng(2))
    weights = {"dense": longer, "masked": halting, "packed": halting}
    with working("classifying the test canvases"):
        found = tested(forms_of(config), weights, images)
    masked, packed = found["masked"], found["packed"]
    error = float(np.abs(masked.logits - packed.logits).max() / np.abs(masked.logits).max())
    predicted = {form: result.logits.argmax(-1) for form, result in found.items()}
    different = int((predicted["masked"] != predicted["packed"]).sum())
    moved = int((masked.depths != packed.depths).sum())
    assert different == moved == 0, f"{different} predictions and {moved} depths differ"
    accuracy = {form: float((p == labels).mean()) for form, p in predicted.items()}
    shares = np.asarray([(packed.depths > i).mean() for i in range(config.layers)])
    rows = []
    for size in sizes:
        gpu = jax.default_backend() == "gpu"
        count = batch or (64 if gpu else 32 if size == "tiny" else 4)
        count, repeats = (2, 1) if quick else (count, 21 if gpu or size == "tiny" else 7)
        layers, side = configs[size].layers, configs[size].side
        learned = None if size == "tiny" else learned_for(layers, shares)
        curves = {f"mean {m}": curve(m, layers) for m in MEANS} | {"learned": learned}
        given = halting if size == "tiny" else model.initial(configs[size])
        source = canvases if side == config.side else Canvases(side)
        pictures, _ = source.batch("test", count, np.random.default_rng(3))
        with working(f"timing {size}"):
            rows += timed(size, configs[size], given, pictures, curves, dtype, repeats)
    heads = [f"{form}\n[ms]" for form in FORMS]
    columns = ["ViT", "tokens", "share", *heads, "over\ndense", "over\nmasked"]
    columns += ["masked\n[MB]", "packed\n[MB]"]
    title = f"A vision transformer whose tokens halt, {dtype}"
    print_table(title, columns, [cells(row) for row in rows], LEGEND)
    console.print(
        f"accuracy on {tests} test canvases: dense {100 * accuracy['dense']:.2f} %, halting "
        f"{100 * accuracy['masked']:.2f} % masked and {100 * accuracy['packed']:.2f} % packed; "
        f"learned shares by layer {np.round(shares, 2).tolist()}; predictions and depths that "
        f"differ between masked and packed: 0; greatest difference of a logit: {error:.1e} of the "
        "largest"
    )
    figure = draw(config, images, labels, predicted["packed"], packed.depths)
    picture = save(figure, out, "halting_vit.png")
    return Result(accuracy, different, error, shares, rows, picture)


def main(argv: Sequence[str] | None = None) -> Result:
    """The command line."""
    command = parser(__doc__ or "")
    command.add_argument("--sizes", nargs="+", choices=list(CONFIGS), default=["tiny", "S"])
    command.add_argument("--batch", type=int, help="images in a timed call (default: by size)")
    command.add_argument("--dtype", choices=["float32", "bfloat16"], default="float32")
    steps, names = (DENSE_STEPS, HALTING_STEPS), ("DENSE", "HALTING")
    text = f"steps of training without halting and with it (default: {steps[0]} {steps[1]})"
    command.add_argument("--steps", type=int, nargs=2, default=steps, metavar=names, help=text)
    chosen = command.parse_args(argv)
    steps = tuple(chosen.steps)
    return run(chosen.quick, chosen.out, chosen.sizes, chosen.batch, chosen.dtype, steps)


if __name__ == "__main__":
    main()
