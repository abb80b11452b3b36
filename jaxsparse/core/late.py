"""A module that runs once another package is imported: what this package registers with flax is
registered whichever of the two is imported first, and `import jaxsparse` imports no flax.
"""

import importlib
import importlib.abc
import importlib.machinery
import importlib.util
import sys
from collections.abc import Sequence
from types import ModuleType


def when_imported(name: str, then: str) -> None:
    """Import the module `then` after the module `name`: now where that is imported already.

    Args:
        name: a module of another package, installed or not.
        then: a module of this package, which may import `name`.
    """
    if name in sys.modules:
        importlib.import_module(then)
    else:
        sys.meta_path.insert(0, _Waiting(name, then))


class _Waiting(importlib.abc.MetaPathFinder):
    """Finds no module of its own: lets the others find `name`, and adds to how it is run."""

    def __init__(self, name: str, then: str) -> None:
        self.name, self.then = name, then

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        """The spec of `name` as the other finders give it; None for any other module."""
        if fullname != self.name:
            return None
        sys.meta_path.remove(self)  # the others are asked, and it is not needed again
        spec = importlib.util.find_spec(fullname)
        if spec is None or spec.loader is None:
            return spec
        run = spec.loader.exec_module

        def run_both(module: ModuleType) -> None:
            run(module)
            importlib.import_module(self.then)

        spec.loader.exec_module = run_both
        return spec
