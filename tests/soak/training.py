"""A training job: the sparse network is trained, and at each step the dense one computes the loss
and the gradients at the same parameters, with the same experts for each pixel.
"""

import dataclasses
import functools
import gc
import time
from collections.abc import Mapping
from typing import Any

import jax
import jax.numpy as jnp

from soak.memory import held
from soak.network import Batch, Dense, Params, Sparse, batch, initial, loss
from soak.report import Finding, progress

RATE, MOMENTUM = 0.02, 0.9
#: The longest gradient, of all parameters together, that a step follows: without a bound long runs
#: may diverge, the dense network with the sparse one.
LONGEST = 1.0
#: The largest differences: of the losses, as a share of the dense loss or, if that is less, of 0.1;
#: of the gradient of an operand, as a share of its largest entry.
TOLERANCE = 1e-5, 1e-3
#: A GPU multiplies in TF32. A step that differs by more than this is computed again in float32,
#: where it has to be within `TOLERANCE`: rounding of a gradient that cancels has no bound.
ROUNDED = TOLERANCE if jax.default_backend() == "cpu" else (1e-2, 5e-2)
#: The programs that are compiled before the first step.
PRECISIONS = (None,) if ROUNDED == TOLERANCE else (None, "highest")
#: Steps between two measurements of memory; bytes that memory may grow by in a thousand steps, and
#: by fragmentation.
EVERY, MOST_BYTES, PIECES = 50, 1e6, 24e6
#: The share of the seconds whose growth is not counted, and the steps that a loss is the mean of.
WARM, MEAN = 0.2, 50
_side = jax.value_and_grad(loss, has_aux=True)


@functools.partial(jax.jit, static_argnames="precision")
def compared(
    params: Params, given: Batch, precision: str | None
) -> tuple[Params, dict[str, jax.Array]]:
    """The sparse network's gradients; both losses, and how far both sides differ."""
    with jax.default_matmul_precision(precision):
        (ours, ids), gradients = _side(params, given, Sparse(), None)
        (dense, _), wanted = _side(params, given, Dense(), ids)

    def apart(a: jax.Array, b: jax.Array) -> jax.Array:
        return jnp.abs(a - b).max() / jnp.maximum(jnp.abs(b).max(), 1e-6)

    each = jax.tree.leaves(jax.tree.map(apart, gradients, wanted))
    far = jnp.abs(ours - dense) / jnp.maximum(jnp.abs(dense), 0.1)
    return gradients, {"loss": ours, "of loss": far, "of gradient": jnp.stack(each).max()}


@functools.partial(jax.jit, donate_argnums=(0, 1))
def update(params: Params, speed: Params, gradients: Params) -> tuple[Params, Params]:
    """One step of gradient descent with momentum."""
    length = jnp.sqrt(sum(jnp.vdot(g, g) for g in jax.tree.leaves(gradients)))
    share = jnp.minimum(1.0, LONGEST / jnp.maximum(length, 1e-6))
    gradients = jax.tree.map(lambda g: share * g, gradients)
    speed = jax.tree.map(lambda s, g: MOMENTUM * s + g, speed, gradients)
    return jax.tree.map(lambda p, s: p - RATE * s, params, speed), speed


def training(seconds: float, seed: int = 0, least: int = 4) -> list[Finding]:
    """Train for so many seconds, and at least so many steps."""
    params = initial(seed)
    speed = jax.tree.map(jnp.zeros_like, params)
    for precision in PRECISIONS:
        jax.block_until_ready(compared(params, batch(seed, 0), precision))
    begin, steps, first, last = time.monotonic(), 0, None, held(settle=False)
    seen: dict[str, list[float]] = {"loss": [], "of loss": [], "of gradient": []}
    bad, again = "", Again()
    with progress("seconds", int(seconds)) as step:
        told = 0
        while (spent := time.monotonic() - begin) < seconds or steps < least:
            given = batch(seed, steps)
            gradients, found = compared(params, given, None)
            if not _within(found, ROUNDED):
                found |= again.judged(params, given)
            params, speed = update(params, speed, gradients)
            for name, value in found.items():
                seen[name].append(float(value))
            steps += 1
            bad = bad or ("" if _within(found, ROUNDED) else f"step {steps - 1}")
            if steps % EVERY == 0:
                gc.collect()
                last = held(settle=False)
                first = last if first is None and spent >= WARM * seconds else first
                mean = sum(seen["loss"][-MEAN:]) / len(seen["loss"][-MEAN:])
                text = f"{steps} steps, loss {mean:.3f}, {last.bytes / 1e6:.0f} MB"
                step(int(spent) - told, text)
                told = int(spent)
    grown = last - (first or last)
    memory = _memory(steps, first, last, grown, programs=1 + len(PRECISIONS))
    return [*_learned(steps, seen["loss"]), *_same(seen, bad), *again.findings(), *memory]


def _within(found: Mapping[str, jax.Array], most: tuple[float, float]) -> bool:
    """Whether both sides are that near. A comparison with NaN is false, so a NaN is not near."""
    return float(found["of loss"]) <= most[0] and float(found["of gradient"]) <= most[1]


@dataclasses.dataclass
class Again:
    """The steps that were computed again in float32: how many, and the largest differences."""

    steps: int = 0
    loss: float = 0.0
    gradient: float = 0.0

    def judged(self, params: Params, given: Batch) -> dict[str, jax.Array]:
        """How far both sides differ in float32: nothing where they are within `TOLERANCE`."""
        _, found = compared(params, given, PRECISIONS[-1])
        self.steps += 1
        self.loss = max(self.loss, float(found["of loss"]))
        self.gradient = max(self.gradient, float(found["of gradient"]))
        good, none = _within(found, TOLERANCE), jnp.zeros(())
        return {"of loss": none, "of gradient": none} if good else {}

    def findings(self) -> list[Finding]:
        """What the table says of them."""
        differences = f"{self.loss:.2g}, {self.gradient:.2g}"
        return [
            Finding("steps computed again in float32", f"{self.steps}"),
            Finding("largest differences there: loss, gradient", differences),
        ]


def _learned(steps: int, losses: list[float]) -> list[Finding]:
    some = max(min(MEAN, steps // 4), 1)
    begin, end = sum(losses[:some]) / some, sum(losses[-some:]) / some
    return [
        Finding("steps", f"{steps}"),
        Finding("loss at first and last", f"{begin:.3f}, {end:.3f}", "falls", end < begin),
    ]


def _same(seen: dict[str, list[float]], bad: str) -> list[Finding]:
    worst = {name: max(seen[name], default=float("nan")) for name in ("of loss", "of gradient")}
    apart = [
        Finding(f"largest difference {name}", f"{far:.2g}", f"{most:.0e}", far <= most)
        for (name, far), most in zip(worst.items(), ROUNDED, strict=True)
    ]
    return [*apart, Finding("first step that differs", bad or "none", "none", not bad)]


def _memory(steps: int, first: Any, last: Any, grown: Any, programs: int) -> list[Finding]:
    most = PIECES + MOST_BYTES * steps / 1e3
    compiled = compared._cache_size() + update._cache_size()  # pyright: ignore
    return [
        Finding("memory", f"{last.bytes / 1e6:.0f} MB"),
        Finding(
            "memory grew by",
            f"{grown.bytes / 1e6:.1f} MB",
            f"{most / 1e6:.0f} MB",
            grown.bytes <= most,
        ),
        Finding("objects of jaxsparse grew by", f"{grown.own}", "0", grown.own <= 0),
        Finding("arrays grew by", f"{grown.arrays}", "0", grown.arrays <= 0),
        Finding("programs compiled", f"{compiled}", f"{programs}", compiled == programs),
        Finding("memory was measured", "twice" if first else "once: too few steps"),
    ]
