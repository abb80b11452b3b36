"""What the public functions and classes say of themselves: every argument and result has a type,
none of them is a bare `Any`, `dict`, `tuple` or `Callable`, and layers show flax's arguments.
"""

import dataclasses
import inspect
import re
from pathlib import Path

import pytest
from flax import linen, nnx

import jaxsparse as js
from jaxsparse import bits, index, mask, ops, select
from jaxsparse.nn import linen as linen_layers
from jaxsparse.nn import nnx as nnx_layers

PACKAGES = [js, bits, index, mask, ops, select, js.bounded, js.pruned, js.recorder, js.nn]
PACKAGES += [js.block_masks]
PACKAGES += [linen_layers, nnx_layers]
BARE = re.compile(r"\b(Any|(dict|tuple|list|Callable|Sequence|Mapping)(?!\s*\[))(?![\w.])")
#: JSON rows that a build generated, and what is chosen from: read by the package, not by users.
INTERNAL = {"Choice", "Problem", "choose", "select"}


def public():
    for package in PACKAGES:
        for name in package.__all__:
            value = getattr(package, name)
            module = getattr(value, "__module__", "") or ""
            if module.startswith("jaxsparse") and name not in INTERNAL and callable(value):
                yield f"{package.__name__}.{name}", value


def functions(value):
    """A function, or the public methods that a class itself has."""
    if inspect.isfunction(value):
        return {"": value}
    found = {}
    for name, member in vars(value).items():
        function = getattr(member, "__func__", getattr(member, "fget", member))
        generated = dataclasses.is_dataclass(value) and name in ("__init__", "__replace__")
        shown = not name.startswith("_") or name in ("__init__", "__call__")
        if inspect.isfunction(function) and shown and not generated:
            found[name] = function
    return found


NAMED = dict(public())


@pytest.mark.parametrize("name", sorted(NAMED))
def test_every_argument_and_result_has_a_type(name):
    for method, function in functions(NAMED[name]).items():
        signature = inspect.signature(inspect.unwrap(function))
        told = {name: each.annotation for name, each in signature.parameters.items()}
        for bound in ("self", "cls"):
            told.pop(bound, None)
        for argument, annotation in {**told, "return": signature.return_annotation}.items():
            where = f"{name}.{method}({argument})"
            assert annotation is not inspect.Signature.empty, where
            text = (
                annotation if isinstance(annotation, str) else inspect.formatannotation(annotation)
            )
            assert not BARE.search(re.sub(r"\"[^\"]*\"|'[^']*'", "", text)), f"{where}: {text}"


@pytest.mark.parametrize("package", PACKAGES, ids=lambda package: package.__name__)
def test_all_names_exist(package):
    assert len(package.__all__) == len(set(package.__all__))
    for name in package.__all__:
        getattr(package, name)


def test_marker_is_installed():
    assert (Path(js.__file__).parent / "py.typed").is_file()


OURS = {"activation", "implementation", "pruned"}
PAIRS = [
    (nnx_layers.MaskedConv, nnx.Conv, {"conv_general_dilated"}),
    (nnx_layers.MaskedDense, nnx.Linear, {"dot_general"}),
    (nnx_layers.PrunedConv, nnx.Conv, {"conv_general_dilated"}),
    (nnx_layers.PrunedDense, nnx.Linear, {"dot_general"}),
    (nnx_layers.SparseAttention, nnx.MultiHeadAttention, set()),
    (linen_layers.MaskedConv, linen.Conv, set()),
    (linen_layers.MaskedDense, linen.Dense, set()),
    (linen_layers.PrunedConv, linen.Conv, set()),
    (linen_layers.PrunedDense, linen.Dense, set()),
    (linen_layers.SparseAttention, linen.MultiHeadDotProductAttention, set()),
]


@pytest.mark.parametrize(("ours", "flax", "refused"), PAIRS)
def test_layers_show_the_arguments_of_flax(ours, flax, refused):
    own = dict(inspect.signature(ours).parameters)
    base = dict(inspect.signature(flax.__init__).parameters)
    del base["self"]
    assert set(own) - set(base) == OURS & set(own)
    for name, parameter in base.items():
        default = None if name in refused else parameter.default
        assert own[name].default == default or own[name].default is default, name


def test_a_subclass_shows_its_own_constructor():
    class Wider(nnx_layers.MaskedDense):
        def __init__(self, width: int, *, rngs: nnx.Rngs) -> None:
            super().__init__(width, 2 * width, rngs=rngs)

    assert list(inspect.signature(Wider).parameters) == ["width", "rngs"]
    call = inspect.signature(Wider(4, rngs=nnx.Rngs(0)))
    assert list(call.parameters) == ["inputs", "mask", "base"]
