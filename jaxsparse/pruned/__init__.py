"""Frozen weights: inspected once (`js.pruned.inspect`), then run sparse (`js.pruned_matmul`,
`js.pruned_conv`).
"""

from typing import TYPE_CHECKING

from jaxsparse.core.lazy import lazy
from jaxsparse.pruned import prune as prune
from jaxsparse.pruned.inspect import Statistics as Statistics
from jaxsparse.pruned.inspect import inspect as inspect
from jaxsparse.pruned.inspect import statistics as statistics
from jaxsparse.pruned.pattern import Pattern as Pattern
from jaxsparse.pruned.plan import Plan as Plan
from jaxsparse.pruned.plan import Tuned as Tuned
from jaxsparse.pruned.weight import PrunedWeight as PrunedWeight

if TYPE_CHECKING:
    from jaxsparse.pruned.model.model import PrunedModel as PrunedModel
    from jaxsparse.pruned.model.plan import prune_model as prune_model
    from jaxsparse.tune.pruned import tune as tune

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
    "tune",
]


def __dir__() -> list[str]:
    """What it offers, without what it is made of."""
    return sorted(__all__)


if not TYPE_CHECKING:  # checkers see the imports above, and refuse other names
    __getattr__ = lazy(
        __name__,
        {
            "PrunedModel": "jaxsparse.pruned.model.model",
            "prune_model": "jaxsparse.pruned.model.plan",
            "tune": "jaxsparse.tune.pruned",
        },
    )
