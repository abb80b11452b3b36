"""A classifier whose blocks compute only where a small head of theirs says so."""

from typing import NamedTuple

import jax
import jax.numpy as jnp
from flax import nnx
from jax import lax

import jaxsparse as js
from jaxsparse import nn


class Noise(NamedTuple):
    """What samples the gates in training: a key, and the noise's scale f32[] (it falls to 0)."""

    key: jax.Array
    scale: jax.Array


def straight_through(is_open: jax.Array, soft: jax.Array) -> jax.Array:
    """0 or 1 forwards; backwards the gradient goes to the soft value. f32, of the gate's shape."""
    return is_open.astype(soft.dtype) + soft - lax.stop_gradient(soft)


class Gate(nnx.Module):
    """One logit a pixel, from its features and those around it."""

    def __init__(self, features: int, rngs: nnx.Rngs) -> None:
        # At first a pixel is open where its features, which are never negative, are large.
        large = nnx.initializers.constant(4 / features)
        closed = nnx.initializers.constant(-0.5)
        self.head = nnx.Linear(features, 2, kernel_init=large, bias_init=closed, rngs=rngs)

    def __call__(
        self, x: jax.Array, noise: Noise | None, within: jax.Array | None
    ) -> tuple[jax.Array, jax.Array]:
        """f32[B,H,W,C] -> (which pixels are open bool[B,H,W], how sure the gate is f32[B,H,W]).

        Open means a positive logit (in training, with logistic noise on it), `within` bool[B,H,W].
        """
        own, around = jnp.moveaxis(self.head(x), -1, 0)
        around = lax.reduce_window(around, 0.0, lax.add, (1, 3, 3), (1, 1, 1), "SAME")
        logits = own + around / 9
        if noise is not None:
            logits = logits + noise.scale * jax.random.logistic(noise.key, logits.shape)
        is_open, soft = logits > 0, jax.nn.sigmoid(logits)
        return (
            (is_open, soft) if within is None else (is_open & within, soft * within.astype(x.dtype))
        )


class GatedBlock(nnx.Module):
    """x + conv(relu(conv(x))), the branch only where the gate is open; one index serves both.

    The first block also drops what it closes; the later ones choose among the pixels that are left.
    """

    def __init__(self, features: int, rngs: nnx.Rngs) -> None:
        self.gate = Gate(features, rngs)
        small = nnx.initializers.variance_scaling(0.5, "fan_in", "normal")
        self.conv1 = nn.nnx.MaskedConv(features, features, (3, 3), activation="relu", rngs=rngs)
        self.conv2 = nn.nnx.MaskedConv(features, features, (3, 3), kernel_init=small, rngs=rngs)

    def __call__(
        self, x: jax.Array, form: str, noise: Noise | None, within: jax.Array | None
    ) -> tuple[jax.Array, jax.Array, jax.Array]:
        """f32[B,H,W,C] -> (f32[B,H,W,C], open bool[B,H,W], soft f32[B,H,W])."""
        is_open, soft = self.gate(x, noise, within)
        y = self.branch(x, is_open, form)
        if form == "dense":
            return jax.nn.relu(x + y), is_open, soft
        gate = is_open.astype(x.dtype) if noise is None else straight_through(is_open, soft)
        if within is None:
            x = x * gate[..., None]
        return jax.nn.relu(x + y * gate[..., None]), is_open, soft

    def branch(self, x: jax.Array, is_open: jax.Array, form: str) -> jax.Array:
        """The two convolutions, zero where the gate is closed (form "dense": everywhere)."""
        if form == "sparse":
            index = js.tile_index(is_open)
            return self.conv2(self.conv1(x, index), index)
        if form == "multiplied":
            gate = is_open[..., None].astype(x.dtype)
            return gate * self.conv2(gate * self.conv1(x))
        return self.conv2(self.conv1(x))


class Classifier(nnx.Module):
    """Stem, two gated blocks at half resolution, down, one at a quarter, and ten logits."""

    def __init__(self, features: int, rngs: nnx.Rngs) -> None:
        self.stem = nnx.Conv(1, features, (3, 3), 2, rngs=rngs)
        self.block1 = GatedBlock(features, rngs)
        self.block2 = GatedBlock(features, rngs)
        self.down = nnx.Conv(features, features, (3, 3), 2, rngs=rngs)
        self.block3 = GatedBlock(features, rngs)
        self.out = nnx.Linear(16 * features, 10, rngs=rngs)

    def __call__(
        self, images: jax.Array, form: str, noise: Noise | None = None
    ) -> tuple[jax.Array, list[jax.Array], list[jax.Array], list[jax.Array]]:
        """Classify images.

        Args:
            images: f32[B,32,32,1] in [0,1].
            form: "sparse" (js.masked_conv), "multiplied" (dense, times the mask) or "dense" (every
                gate taken as open).
            noise: samples the gates, for training; None takes the likelier state.

        Returns:
            Logits f32[B,10]; of each block: its input, the open pixels, and the gates' soft values.
        """
        inputs, masks, softs = [], [], []

        def through(block: GatedBlock, x: jax.Array) -> jax.Array:
            inputs.append(x)
            within = masks[0] if masks else None
            if within is not None and x.shape[1] < within.shape[1]:
                within = within.reshape(len(x), x.shape[1], 2, x.shape[2], 2).any((2, 4))
            own = noise and Noise(jax.random.fold_in(noise.key, len(masks)), noise.scale)
            x, is_open, soft = block(x, form, own, within)
            masks.append(is_open)
            softs.append(soft)
            return x

        x = jax.nn.relu(self.stem(images))
        x = through(self.block2, through(self.block1, x))
        x = through(self.block3, jax.nn.relu(self.down(x)))
        b, h, w, c = x.shape
        pooled = x.reshape(b, 4, h // 4, 4, w // 4, c).max((2, 4)).reshape(b, 16 * c)
        return self.out(pooled), inputs, masks, softs
