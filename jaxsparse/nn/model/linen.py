"""A linen model on its plans: flax's interceptors put them into its Dense and Conv layers."""

import contextlib
import dataclasses
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import jax
from flax import linen

from jaxsparse.nn.model.injections import Injection, frozen, in_training, layers_of
from jaxsparse.pruned.model.model import PrunedModel
from jaxsparse.pruned.weight import PrunedWeight

_TAKES = {
    "dot_general": (linen.Dense, linen.DenseGeneral),
    "conv_general_dilated": (linen.Conv,),
}
_PLANS = "_jaxsparse_plans"


def apply_linen(model: PrunedModel, module: Any) -> Any:
    """The module as one of a subclass, whose methods run with the plans in its layers.

    Raises:
        ValueError: for a module that is bound to parameters.
    """
    if module.scope is not None:
        raise ValueError("module is bound to parameters: apply plans to the unbound one")
    kind = type(module)
    functions = {path: frozen(plan) for path, plan in layers_of(model.plans).items()}

    class Applied(kind):
        def __call__(self, *args: Any, **kwargs: Any) -> Any:
            with _unless_training(functions, self.path):
                return super().__call__(*args, **kwargs)

        def apply(self, variables: Mapping[str, Any], *args: Any, **kwargs: Any) -> Any:
            whole = all(path.startswith("params/") for path in model.plans)
            model.check_paths(variables if whole else variables["params"])
            with _unless_training(functions, ()):
                return super().apply(variables, *args, **kwargs)

    Applied.__name__ = Applied.__qualname__ = kind.__name__
    Applied.__module__, Applied.__doc__ = kind.__module__, kind.__doc__
    setattr(Applied, _PLANS, layers_of(model.plans))
    fields = [f.name for f in dataclasses.fields(module) if f.init and f.name != "parent"]
    return Applied(**{name: getattr(module, name) for name in fields})


def plans_of(module: Any) -> dict[str, PrunedWeight]:
    """The plans of a module from `apply_linen`, by layer.

    Raises:
        ValueError: for another module.
    """
    plans = getattr(type(module), _PLANS, None)
    if plans is None:
        raise ValueError(
            f"{type(module).__name__} has no plans: pass what js.prune_model or its "
            ".apply(module) returned"
        )
    return plans


@contextlib.contextmanager
def _unless_training(functions: Mapping[str, Injection], root: tuple[str, ...]) -> Iterator[None]:
    if in_training():
        yield
    else:
        with intercepting(functions, root):
            yield


@contextlib.contextmanager
def intercepting(functions: Mapping[str, Injection], root: tuple[str, ...] = ()) -> Iterator[None]:
    """Inside, the layers at the paths of `functions`, counted from the module at `root`, run with
    them.
    """

    def intercept(
        call: Callable[..., jax.Array], args: Any, kwargs: Any, context: Any
    ) -> jax.Array:
        module = context.module
        if context.method_name != "__call__" or module.path[: len(root)] != root:
            return call(*args, **kwargs)
        path = "/".join(module.path[len(root) :])
        injection = functions.get(path)
        if injection is None:
            return call(*args, **kwargs)
        check_layer(module, path, injection)
        before = getattr(module, injection.name)
        object.__setattr__(module, injection.name, injection.function)
        try:
            return call(*args, **kwargs)
        finally:
            object.__setattr__(module, injection.name, before)

    with linen.intercept_methods(intercept):
        yield


def check_layer(module: Any, path: str, injection: Injection) -> None:
    """Whether the layer at `path` takes the function.

    Raises:
        TypeError, ValueError: naming its path.
    """
    takes = _TAKES[injection.name]
    if not isinstance(module, takes) or type(module).__module__.startswith("jaxsparse."):
        names = " or ".join(f"linen.{kind.__name__}" for kind in takes)
        raise TypeError(
            f"{path or 'kernel'}: a plan for {injection.pruned.kind} goes into a {names}; "
            f"this layer is a {type(module).__name__}: leave it out of js.prune_model's sparsity"
        )
    own = getattr(module, injection.name)
    if (
        own not in (None, injection.function)
        or getattr(module, injection.name + "_cls") is not None
    ):
        raise ValueError(f"{path}: the layer brings its own {injection.name}")
