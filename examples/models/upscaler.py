"""A network that doubles the sides of a picture's luma: eighteen 3x3 convolutions, one resolution.

It adds detail to a bilinear enlargement: the last convolution makes four pixels of each. Training
pairs a photograph with its own means of 2x2 pixels.
"""

import functools
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from sklearn.datasets import load_sample_images

from models.edit_network import Layer, Params, dense_conv, evaluate

CHANNELS, BLOCKS = 48, 8
WEIGHTS = Path(__file__).with_name("upscaler.npz")
LUMA = np.array([0.299, 0.587, 0.114], np.float32)  # ITU-R BT.601
SIDE, BATCH, TRAIN_SHARE = 32, 8, 0.75


def layers(channels: int = CHANNELS, blocks: int = BLOCKS) -> list[Layer]:
    """A head, residual blocks of two, a tail whose four results are the four pixels."""
    table = [Layer("head", 0, 1, channels, 1, "relu")]
    for _ in range(blocks):
        table.append(Layer("blocks", 0, channels, channels, 1, "relu"))
        table.append(Layer("blocks", 0, channels, channels, 1, None, closes=True))
    return [*table, Layer("tail", 0, channels, 4, 1, None)]


def initial(table: list[Layer], seed: int = 0) -> Params:
    """Random weights to start training from: blocks and the tail start near zero."""
    rng = np.random.default_rng(seed)
    params = []
    for layer in table:
        scale = 1.0 if layer.activation == "relu" else 0.1
        spread = scale * np.sqrt(2 / (9 * layer.channels))
        kernel = rng.standard_normal((3, 3, layer.channels, layer.outputs)) * spread
        params.append((jnp.asarray(kernel, jnp.float32), jnp.zeros(layer.outputs, jnp.float32)))
    return params


def load(path: Path = WEIGHTS) -> Params:
    """The trained weights, f32 of what is stored in 16 bits."""
    with np.load(path) as stored:
        names = [f"{i:02}" for i in range(len(stored.files) // 2)]
        pairs = [(stored[f"kernel{n}"], stored[f"bias{n}"]) for n in names]
    return [(jnp.asarray(k, jnp.float32), jnp.asarray(b, jnp.float32)) for k, b in pairs]


def store(params: Params, path: Path) -> None:
    """Write the weights, kernels in 16 bits."""
    named: dict[str, Any] = {}
    for i, (kernel, bias) in enumerate(params):
        named[f"kernel{i:02}"] = np.asarray(kernel, np.float16)
        named[f"bias{i:02}"] = np.asarray(bias, np.float32)
    np.savez_compressed(path, **named)


def enlarged(x: jax.Array) -> jax.Array:
    """The bilinear enlargement of f32[B,H,W,1] as four pixels of each, f32[B,H,W,4]."""
    wide = jnp.pad(x[..., 0], [(0, 0), (1, 1), (1, 1)], mode="edge")
    rows = [0.75 * wide[:, 1:-1] + 0.25 * wide[:, at : at + x.shape[1]] for at in (0, 2)]
    pixels = [
        0.75 * row[:, :, 1:-1] + 0.25 * row[:, :, at : at + x.shape[2]]
        for row in rows
        for at in (0, 2)
    ]
    return jnp.stack(pixels, -1)


def image_of(x: jax.Array, detail: jax.Array) -> jax.Array:
    """The picture f32[B,2H,2W] of its luma f32[B,H,W,1] and the tail's result [B,H,W,4]."""
    b, h, w, _ = detail.shape
    pixels = (enlarged(x) + detail).reshape(b, h, w, 2, 2)
    return pixels.transpose(0, 1, 3, 2, 4).reshape(b, 2 * h, 2 * w)


def upscale(table: list[Layer], params: Params, x: jax.Array) -> jax.Array:
    """The network by XLA's convolutions: f32[B,2H,2W] of f32[B,H,W,1] in [0,1]."""
    detail = evaluate(table, x, lambda i, x, skip: dense_conv(table[i], *params[i], x, skip))
    return image_of(x, detail)


def decibels(mean_square: float) -> float:
    """The PSNR of a mean square of differences, of values in [0,1]."""
    return float("inf") if mean_square == 0 else -10 * float(np.log10(mean_square))


def photographs(part: str) -> list[np.ndarray]:
    """The luma f32[H,W] in [0,1] of scikit-learn's two photographs: their left three quarters
    ("train"), or the rest ("test").
    """
    found = []
    for photo in load_sample_images().images:
        luma = photo.astype(np.float32) @ LUMA / 255
        cut = int(TRAIN_SHARE * luma.shape[1])
        found.append(luma[:, :cut] if part == "train" else luma[:, cut:])
    return found


def halved(picture: np.ndarray) -> np.ndarray:
    """f32[...,H//2,W//2]: the means of 2x2 pixels of [...,H,W]."""
    high, wide = (n // 2 for n in picture.shape[-2:])
    cut = picture[..., : 2 * high, : 2 * wide]
    return cut.reshape(*picture.shape[:-2], high, 2, wide, 2).mean((-3, -1))


def batch(photos: list[np.ndarray], rng: np.random.Generator) -> np.ndarray:
    """Pieces f32[BATCH,2*SIDE,2*SIDE] of photographs, turned and mirrored at random."""
    pieces = []
    for _ in range(BATCH):
        photo = photos[rng.integers(len(photos))]
        top, left = (rng.integers(n - 2 * SIDE + 1) for n in photo.shape)
        piece = photo[top : top + 2 * SIDE, left : left + 2 * SIDE]
        pieces.append(np.rot90(piece[:, :: rng.choice((-1, 1))], rng.integers(4)))
    return np.stack(pieces)


def train(table: list[Layer], steps: int, tick: Any = None) -> Params:
    """Weights after so many steps of Adam on the mean absolute error. Takes optax."""
    import optax

    rates = optax.warmup_cosine_decay_schedule(0.0, 1e-3, max(1, steps // 20), steps, 1e-6)
    optimiser = optax.chain(optax.clip_by_global_norm(1.0), optax.adam(rates))
    params = initial(table)

    def loss_of(params: Params, x: jax.Array, want: jax.Array) -> jax.Array:
        return jnp.abs(upscale(table, params, x) - want).mean()

    @functools.partial(jax.jit, donate_argnums=(0, 1))
    def step(params: Params, state: Any, x: jax.Array, want: jax.Array) -> Any:
        loss, gradient = jax.value_and_grad(loss_of)(params, x, want)
        updates, state = optimiser.update(gradient, state)
        return optax.apply_updates(params, updates), state, loss

    state, photos, rng = optimiser.init(params), photographs("train"), np.random.default_rng(0)
    for number in range(steps):
        want = batch(photos, rng)
        params, state, loss = step(params, state, halved(want)[..., None], want)
        if tick:
            tick(number, loss)
    return params
