"""How a problem's variant is chosen, drawn at random: `js.config` with any of its settings."""

import contextlib
import dataclasses
import zlib
from typing import Any

import jax
import jax.numpy as jnp

import jaxsparse as js
from fuzz.problem import Draw
from jaxsparse.select.policy import MOST
from jaxsparse.select.rows import Entry, Rung
from jaxsparse.select.table import DENSE, TuningTable

#: Those that a function of the density may choose for.
BY_DENSITY = ("masked_conv", "masked_dense", "masked_matmul", "grouped_matmul")
LADDERS = ("masked_conv", "masked_dense", "masked_matmul", "grouped_matmul", "sparse_attention")


@dataclasses.dataclass(frozen=True)
class AnyOption:
    """A policy that takes any option of a problem, or several by the density; equal seeds take the
    same.
    """

    seed: int

    def __call__(self, problem: Any, options: Any) -> Any:
        """The answer."""
        drawn = zlib.crc32(f"{self.seed} {problem.op} {sorted(problem.features.items())}".encode())
        if problem.op not in BY_DENSITY or drawn % 2:
            return options[drawn // 2 % len(options)]
        several = options[:MOST]
        return several, lambda density: (density * 97).astype(jnp.int32) % len(several)


def table(draw: Draw) -> TuningTable:
    """Ladders of any variants, for every op that has some."""
    platform = "cuda" if jax.default_backend() == "gpu" else "cpu"
    entries = []
    for op in LADDERS:
        names = [v.name for v in js.variants(op) if v.platform == platform] + [DENSE]
        ends = sorted(draw.rng.random(3).tolist())
        ladder = tuple(Rung(end, draw.pick(*names)) for end in (*ends, 1.0))
        entries.append(Entry(op, "float32", {}, draw.pick(*names), ladder))
    return TuningTable(jax.devices()[0].device_kind, "drawn", tuple(entries))


def settings(draw: Draw) -> tuple[str, Any]:
    """What they are called, and the context; half of the problems have none."""
    kind = draw.pick(
        None, None, None, None, "selection", "policy", "policy", "table", "plain", "same"
    )
    if kind is None:
        return "", contextlib.nullcontext()
    given: dict[str, Any] = {}
    if kind == "policy":
        given = {"policy": AnyOption(draw.seed())}
    elif kind == "table":
        given = {"tuning": table(draw), "selection": draw.pick("static", "switch")}
    elif kind == "plain":
        given = {"implementation": draw.pick("reference", ("cpu", "reference"))}
    elif kind == "same":
        given = {"deterministic": True, "selection": draw.pick(None, "switch")}
    else:
        given = {"selection": draw.pick("static", "device", "switch")}
    text = {name: "drawn" if name == "tuning" else value for name, value in given.items()}
    return f", {text}", js.config(**given)
