"""Layers for flax: `js.nn.linen`, `js.nn.nnx`. flax is imported when one is first used."""

import importlib
from typing import TYPE_CHECKING

from jaxsparse.core.late import when_imported
from jaxsparse.core.lazy import lazy
from jaxsparse.nn.training import pruned as pruned

if TYPE_CHECKING:
    from jaxsparse.nn import linen as linen
    from jaxsparse.nn import nnx as nnx
    from jaxsparse.nn.attention import sparse_attention_fn as sparse_attention_fn
    from jaxsparse.nn.injected import pruned_conv_general_dilated as pruned_conv_general_dilated
    from jaxsparse.nn.injected import pruned_dot_general as pruned_dot_general

when_imported("flax.serialization", "jaxsparse.nn.checkpoints")
when_imported("flax.nnx", "jaxsparse.nn.data")

_MODULES = ("linen", "nnx")
_late = lazy(
    __name__,
    {
        "pruned_conv_general_dilated": "jaxsparse.nn.injected",
        "pruned_dot_general": "jaxsparse.nn.injected",
        "sparse_attention_fn": "jaxsparse.nn.attention",
    },
)
__all__ = [
    "linen",
    "nnx",
    "pruned",
    "pruned_conv_general_dilated",
    "pruned_dot_general",
    "sparse_attention_fn",
]


def __dir__() -> list[str]:
    """The layers' modules, imported or not, and the rest of the API."""
    return sorted(__all__)


def _get(name: str) -> object:
    """The module `linen` or `nnx`, or what needs the operations.

    Raises:
        ImportError: when flax is not installed, saying how to install it.
        AttributeError: for any other name.
    """
    if name not in _MODULES:
        return _late(name)
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "flax":
            raise
        raise ImportError(
            f"{__name__}.{name} needs flax: pip install 'jaxsparse[nn]'", name="flax"
        ) from error


if not TYPE_CHECKING:  # checkers see the imports above, and refuse other names
    __getattr__ = _get
