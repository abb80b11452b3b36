"""Every cache by static arguments in the package has a bound."""

import contextlib
import functools
import importlib
import pkgutil
import sys

import jaxsparse as js
from jaxsparse.core import batching

#: Caches without a bound, of functions with few possible arguments: files, platforms.
FEW = {
    "jaxsparse.core.differentiable._primitive",
    "jaxsparse.core.linear._partitioned",
    "jaxsparse.core.linear._primitive",
    "jaxsparse.ffi.faults._primitive",
    "jaxsparse.ffi.platform._cuda_capabilities",
    "jaxsparse.ffi.platform._warn_of_reference",
    "jaxsparse.ffi.refusal._primitive",
    "jaxsparse.ffi.register.module",
    "jaxsparse.index.blocks.lists._lister",
    "jaxsparse.ops.masked_conv.fill._batched",
    "jaxsparse.pruned.emit.module._primitive",
    "jaxsparse.select.roofline.calibration.calibrated",
    "jaxsparse.select.roofline.machine.sheets",
    "jaxsparse.select.table.shipped",
    "jaxsparse.select.variants.table",
    "jaxsparse.testing.masks.photograph",
}


def test_the_latest_are_kept(monkeypatch):
    monkeypatch.setattr(batching, "MOST_KEPT", 2)
    asked = []

    @batching.kept
    def double(n: int) -> int:
        asked.append(n)
        return 2 * n

    assert [double(n) for n in (1, 2, 1, 3, 2)] == [2, 4, 2, 6, 4]
    assert asked == [1, 2, 3, 2]
    assert double.__name__ == "double"


def test_every_cache_has_a_bound():
    for found in pkgutil.walk_packages(js.__path__, "jaxsparse."):
        if not found.name.endswith("__main__"):
            with contextlib.suppress(ModuleNotFoundError):  # of an optional package
                importlib.import_module(found.name)
    caches = {
        f"{name}.{value.__name__}": value.cache_parameters()["maxsize"]
        for name, module in list(sys.modules.items())
        for value in list(vars(module).values())
        if isinstance(value, functools._lru_cache_wrapper) and value.__module__ == name
        if name.startswith("jaxsparse.")
    }
    assert {name for name, most in caches.items() if most is None} == FEW
    assert len(caches) > len(FEW) + 10
