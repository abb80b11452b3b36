"""One stage of training a gated network: dense, with gates, or in few bits."""

import functools
from collections.abc import Callable
from typing import Any, NamedTuple

import jax
import jax.numpy as jnp
import numpy as np
import optax

import models.gated_resnet as model
from models.canvases import Canvases
from models.common import console, progress
from models.gated import Noise, straight_through
from models.gated_resnet import Config, Params
from models.resnet20 import fake_quantised, normalised

BATCH = 32
#: Canvases whose statistics are folded into the parameters.
FOLDED = 1024
PENALTY = 4.0
#: Noise on the gates falls from 1 to 0 over this share of the steps.
NOISY = 0.6
ADAM = optax.chain(optax.clip_by_global_norm(1.0), optax.scale_by_adam())


class Stage(NamedTuple):
    """One stage of the training.

    Attributes:
        name: for the progress.
        steps: batches.
        rate: the highest learning rate.
        normalised: whether batches are normalised (dense only), and this is folded afterwards.
        gated: with gates; else dense.
        noisy: whether the gates get noise.
        bits: of values; None: float32.
        seed: of batches and noise.
    """

    name: str
    steps: int
    rate: float
    normalised: bool = False
    gated: bool = False
    noisy: bool = False
    bits: int | None = None
    seed: int = 0


def loss_of(
    config: Config,
    stage: Stage,
    target: float,
    params: Params,
    images: jax.Array,
    labels: jax.Array,
    noise: Noise,
) -> jax.Array:
    """Cross-entropy; with gates also the penalty on their open pixels."""

    def entropy_of(logits: jax.Array) -> jax.Array:
        return optax.softmax_cross_entropy_with_integer_labels(logits, labels).mean()

    if stage.normalised:
        return entropy_of(normalised.run(config, params, images)[0])
    if not stage.gated:
        return entropy_of(model.run(config, "dense", params, images).logits)
    sampled = noise if stage.noisy else noise._replace(scale=jnp.float32(0))
    if stage.bits is not None:
        params = fake_quantised.parameters(params, stage.bits)
    found = model.run(config, "multiplied", params, images, noise=sampled, bits=stage.bits)
    pairs = zip(found.masks, found.softs, strict=True)
    share = jnp.stack([straight_through(mask, soft).mean() for mask, soft in pairs]).mean()
    return entropy_of(found.logits) + PENALTY * (share - target) ** 2


def train_step(config: Config, stage: Stage, target: float) -> Callable[..., Any]:
    """One step of Adam: (params, state, images, labels, rate, noise) -> (params, state, loss)."""
    loss = functools.partial(loss_of, config, stage, target)

    @jax.jit
    def step(params: Params, state: Any, images: Any, labels: Any, rate: Any, noise: Noise) -> Any:
        value, gradient = jax.value_and_grad(loss)(params, images, labels, noise)
        updates, state = ADAM.update(gradient, state, params)
        updates = jax.tree.map(lambda u: -rate * u, updates)
        return optax.apply_updates(params, updates), state, value

    return step


def train(
    config: Config, stage: Stage, target: float, params: Params, canvases: Canvases
) -> Params:
    """`stage.steps` batches; the rate rises for a tenth of them and then falls to 0."""
    step, steps = train_step(config, stage, target), stage.steps
    rates = optax.warmup_cosine_decay_schedule(0.0, stage.rate, max(1, steps // 10), max(2, steps))
    if stage.normalised:
        params = normalised.with_gains(params)
    state, rng = ADAM.init(params), np.random.default_rng(stage.seed)
    key, values = jax.random.key(stage.seed), list[float]()
    with progress() as bar:
        task = bar.add_task(f"training, {stage.name}", total=steps)
        for i in range(steps):
            images, labels = canvases.batch("train", BATCH, rng)
            scale = jnp.float32(max(0.0, 1 - i / (NOISY * steps)))
            noise = Noise(jax.random.fold_in(key, i), scale)
            params, state, value = step(params, state, images, labels, jnp.float32(rates(i)), noise)
            values.append(float(value))
            if i % 250 == 249:
                mean = np.mean(values[-250:])
                console.print(f"{stage.name}, step {i + 1} of {steps}: loss {mean:.3f}")
            bar.advance(task)
    if steps:
        console.print(f"trained {stage.name}, {steps} steps: loss {np.mean(values[-50:]):.3f}")
    if stage.normalised:
        images, _ = canvases.batch("train", FOLDED, rng)
        _, params = jax.jit(normalised.run, static_argnums=0)(config, params, images)
    return params
