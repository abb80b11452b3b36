"""`js.prune_model`: a whole parameter tree pruned and planned."""

from typing import TYPE_CHECKING

from jaxsparse.core.lazy import lazy

if TYPE_CHECKING:
    from jaxsparse.nn.model.applied import applied as applied

if not TYPE_CHECKING:  # checkers see the import above, and refuse other names
    __getattr__ = lazy(__name__, {"applied": "jaxsparse.nn.model.applied"})
