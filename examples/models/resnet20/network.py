"""The stages of the training, the initial ranges for few bits, and the stored weights."""

from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

import models.gated_resnet as model
from models.canvases import Canvases
from models.gated_resnet import Config, Params
from models.resnet20.training import Stage, train

SIDE, TARGET = 128, 0.4
WEIGHTS = Path(__file__).with_name("weights.npz")
#: Bits of each gated network: None is float32.
BITS = {"float32": None, "int8": 8, "int4": 4}
#: Each stage starts from the one named. The dense control is trained for as many further steps as
#: the gates. Eight bits need no training: the largest values of a batch are good enough ranges.
STAGES = {
    "first": (None, Stage("dense", 1000, 4e-3, normalised=True)),
    "dense": ("first", Stage("dense, continued", 500, 5e-4, seed=1)),
    "float32": ("first", Stage("gated", 500, 1e-3, gated=True, noisy=True, seed=1)),
    "int8": ("float32", Stage("gated, int8", 0, 1e-4, gated=True, bits=8, seed=2)),
    "int4": ("float32", Stage("gated, int4", 800, 5e-4, gated=True, bits=4, seed=2)),
}


def with_ranges(config: Config, params: Params, images: jax.Array) -> Params:
    """The parameters, with the largest value that each convolution of a block reads of `images`.

    Raises:
        ValueError: for a network of bottlenecks: only blocks of two convolutions have ranges.
    """
    if config.bottleneck:
        raise ValueError(
            f"{config.name} has bottlenecks; only blocks of two convolutions have ranges"
        )
    x = jax.nn.relu(model.xla_conv(params["stem"], images, config.stride))
    blocks = []
    for block, (_, stride) in zip(params["blocks"], config.blocks, strict=True):
        first, second = block["convs"]
        y = jax.nn.relu(model.xla_conv(first, x, stride))
        blocks.append(block | {"ranges": jnp.stack([x.max(), y.max()])})
        mask, _ = model.gate(block["gate"], x, stride, None)
        shortcut = model.xla_conv(block["shortcut"], x, stride) if "shortcut" in block else x
        x = jax.nn.relu(shortcut + model.xla_conv(second, y) * mask[..., None].astype(x.dtype))
    return params | {"blocks": blocks}


def trained(
    config: Config, canvases: Canvases, steps: int | None = None, target: float = TARGET
) -> dict[str, Params]:
    """Run every stage: the dense control, and the gated networks, by name.

    Args:
        config: ResNet-20 for the canvases' side.
        canvases: to train on.
        steps: of each stage, in place of its own.
        target: share of the pixels that the gates should leave open.
    """
    found: dict[str, Params] = {}
    for name, (before, stage) in STAGES.items():
        params = model.initial(config) if before is None else found[before]
        if stage.bits is not None:
            images, _ = canvases.batch("train", 256, np.random.default_rng(stage.seed))
            params = jax.jit(with_ranges, static_argnums=0)(config, params, images)
        chosen = stage if steps is None else stage._replace(steps=steps)
        found[name] = train(config, chosen, target, params, canvases)
    del found["first"]
    return found


def _named(params: Params) -> dict[str, Any]:
    leaves, _ = jax.tree_util.tree_flatten_with_path(params)
    return {jax.tree_util.keystr(path, simple=True, separator="/"): leaf for path, leaf in leaves}


def store(networks: dict[str, Params], path: Path) -> None:
    """Write all networks, in 16 bits."""
    np.savez_compressed(path, **{k: np.asarray(v, np.float16) for k, v in _named(networks).items()})


def load(config: Config, path: Path = WEIGHTS) -> dict[str, Params]:
    """The stored networks, converted from 16 bits to float32."""
    plain = model.initial(config)
    ranged = {"blocks": [block | {"ranges": jnp.zeros(2)} for block in plain["blocks"]]}
    shapes = dict.fromkeys(("dense", "float32"), plain)
    shapes |= dict.fromkeys(("int8", "int4"), plain | ranged)
    with np.load(path) as stored:
        values = [jnp.asarray(stored[name], jnp.float32) for name in _named(shapes)]
    return jax.tree.unflatten(jax.tree.structure(shapes), values)
