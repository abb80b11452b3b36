"""Accuracy, open pixels and times of the trained networks, on canvases without training data."""

import functools
from typing import Any, NamedTuple

import jax
import numpy as np

import models.gated_resnet as model
from models.canvases import Canvases
from models.common import progress, time_together
from models.gated_resnet import FORMS, Config, Params
from models.resnet20 import fake_quantised
from models.resnet20.network import BITS

BATCH = 64


class Found(NamedTuple):
    """One network on the test canvases.

    Attributes:
        right: which canvases it classifies correctly, bool[n].
        shares: of open pixels, by block.
        moved: share of the pixels whose gate is not as in float32.
        different: canvases that the masked forms classify differently.
        times: milliseconds of a batch by form; in "dense" every gate is open.
    """

    right: np.ndarray
    shares: np.ndarray
    moved: float
    different: int
    times: dict[str, float]


class Shown(NamedTuple):
    """Of the first batch: canvases, labels, float32's predictions and its blocks' open pixels."""

    images: np.ndarray
    labels: np.ndarray
    predicted: np.ndarray
    masks: list[np.ndarray]


class Seen(NamedTuple):
    """The canvases bool[n] that the dense control classifies correctly, the gated networks by name,
    and what the picture shows.
    """

    dense: np.ndarray
    gated: dict[str, Found]
    shown: Shown


def calls_of(config: Config, networks: dict[str, Params]) -> dict[tuple[str, str], Any]:
    """(network, form) -> a compiled call: images -> Gated. ("dense", "dense") is the control."""
    found = {("dense", "dense"): _call(config, networks["dense"], "dense", None)}
    for name, bits in BITS.items():
        params = networks[name]
        if bits is not None:
            params = jax.jit(fake_quantised.parameters, static_argnums=1)(params, bits)
        found |= {(name, form): _call(config, params, form, bits) for form in FORMS}
    return found


def _call(config: Config, params: Params, form: str, bits: int | None) -> Any:
    return functools.partial(jax.jit(functools.partial(model.run, config, form, bits=bits)), params)


def evaluate(
    config: Config, networks: dict[str, Params], canvases: Canvases, tests: int, repeats: int
) -> Seen:
    """Classify `tests` canvases in whole batches, and time a batch of each form. Canvases are
    classified in float32 on a GPU, too, since TF32 rounds each form by itself; times are those of
    the default precision.
    """
    calls, rng = calls_of(config, networks), np.random.default_rng(2)
    sums = {name: np.zeros(len(config.blocks)) for name in BITS}
    right: dict[str, list[Any]] = {name: [] for name in ("dense", *BITS)}
    moved, different = dict.fromkeys(BITS, 0.0), dict.fromkeys(BITS, 0)
    batch, shown = min(BATCH, tests), None
    with progress() as bar, jax.default_matmul_precision("highest"):
        task = bar.add_task("classifying canvases", total=tests // batch)
        for _ in range(tests // batch):
            images, labels = canvases.batch("test", batch, rng)
            logits = calls["dense", "dense"](images).logits
            right["dense"].append(np.asarray(logits).argmax(-1) == labels)
            plain: list[np.ndarray] = []
            for name in BITS:
                want, got = (calls[name, form](images) for form in ("multiplied", "sparse"))
                predicted = np.asarray(got.logits).argmax(-1)
                masks = [np.asarray(m) for m in got.masks]
                plain = plain or masks
                shown = shown or Shown(images, labels, predicted, masks)
                right[name].append(predicted == labels)
                different[name] += int((np.asarray(want.logits).argmax(-1) != predicted).sum())
                sums[name] += [m.mean() for m in masks]
                pairs = zip(masks, plain, strict=True)
                moved[name] += float(np.mean([(a != b).mean() for a, b in pairs]))
            bar.advance(task)
    assert shown is not None
    parts, gated = tests // batch, {}
    for name in BITS:
        forms = {form: functools.partial(calls[name, form], shown.images) for form in FORMS}
        times = time_together(forms, repeats)
        share, every = sums[name] / parts, np.concatenate(right[name])
        gated[name] = Found(every, share, moved[name] / parts, different[name], times)
    return Seen(np.concatenate(right["dense"]), gated, shown)
