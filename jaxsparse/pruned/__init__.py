"""Frozen weights: inspected once (`js.inspect`), then run sparse (`js.pruned_matmul`,
`js.pruned_conv`).
"""

from jaxsparse.pruned import prune as prune
from jaxsparse.pruned.inspect import Statistics as Statistics
from jaxsparse.pruned.inspect import inspect as inspect
from jaxsparse.pruned.inspect import statistics as statistics
from jaxsparse.pruned.model import PrunedModel as PrunedModel
from jaxsparse.pruned.model import prune_model as prune_model
from jaxsparse.pruned.pattern import Pattern as Pattern
from jaxsparse.pruned.weight import Plan as Plan
from jaxsparse.pruned.weight import PrunedWeight as PrunedWeight
from jaxsparse.pruned.weight import Tuned as Tuned

__all__ = [
    "Pattern",
    "Plan",
    "PrunedModel",
    "PrunedWeight",
    "Statistics",
    "Tuned",
    "inspect",
    "prune",
    "prune_model",
    "statistics",
    "tune",  # pyright: ignore[reportUnsupportedDunderAll]
]


def __dir__() -> list[str]:
    """What it offers, without what it is made of."""
    return sorted(__all__)


def __getattr__(name: str) -> object:
    """`tune`, which needs the ops, is loaded when it is first used."""
    if name != "tune":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    import importlib

    return importlib.import_module("jaxsparse.pruned.tuner").tune
