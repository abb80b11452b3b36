"""Names that a package offers and a higher layer defines: imported when they are first used
(PEP 562), so that the package itself imports nothing above it.

    if TYPE_CHECKING:  # for type checkers
        from jaxsparse.tune.pruned import tune as tune

    if not TYPE_CHECKING:  # or they would take any name
        __getattr__ = lazy(__name__, {"tune": "jaxsparse.tune.pruned"})
"""

import importlib
import sys
from collections.abc import Callable, Mapping


def lazy(package: str, names: Mapping[str, str]) -> Callable[[str], object]:
    """A module's `__getattr__`.

    Args:
        package: `__name__` of the module.
        names: name -> the module that defines it, or the submodule of that name itself.

    Returns:
        A function of a name that imports what it stands for and keeps it in the package; it raises
        AttributeError for any other name.
    """

    def get(name: str) -> object:
        if name not in names:
            raise AttributeError(f"module {package!r} has no attribute {name!r}")
        module = importlib.import_module(names[name])
        value = module if names[name] == f"{package}.{name}" else getattr(module, name)
        setattr(sys.modules[package], name, value)
        return value

    return get
