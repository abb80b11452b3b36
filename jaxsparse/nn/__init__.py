"""Layers for flax: `js.nn.linen`, `js.nn.nnx`. flax is imported when one is first used."""

import importlib
from types import ModuleType

__all__ = ["linen", "nnx"]  # pyright: ignore[reportUnsupportedDunderAll]


def __getattr__(name: str) -> ModuleType:
    """The module `linen` or `nnx`.

    Raises:
        ImportError: when flax is not installed, saying how to install it.
        AttributeError: for any other name.
    """
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    try:
        return importlib.import_module(f"{__name__}.{name}")
    except ModuleNotFoundError as error:
        if error.name is None or error.name.partition(".")[0] != "flax":
            raise
        raise ImportError(
            f"{__name__}.{name} needs flax: pip install 'jaxsparse[nn]'", name="flax"
        ) from error
