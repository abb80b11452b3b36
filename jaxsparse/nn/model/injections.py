"""Plans on their way into the layers of a model: what the linen and the nnx form share."""

import dataclasses
import functools
from collections.abc import Callable, Mapping

import jax
import numpy as np

from jaxsparse.nn.injected import pruned_conv_general_dilated, pruned_dot_general
from jaxsparse.pruned.plan import Plan
from jaxsparse.pruned.weight import PrunedWeight

#: The plans that are trained where this is traced, as a hashable: part of the jit key.
training_plans = jax.make_user_context(None)


@dataclasses.dataclass(frozen=True)
class Injection:
    """The function for one of flax's layers, and the plan that it holds."""

    pruned: PrunedWeight
    function: Callable[..., jax.Array]

    @property
    def name(self) -> str:
        """The layer's argument that takes the function."""
        return argument(self.pruned)


def argument(pruned: PrunedWeight) -> str:
    """The argument of flax's layers that a plan goes into."""
    return "dot_general" if pruned.kind == "matmul" else "conv_general_dilated"


def frozen(pruned: PrunedWeight) -> Injection:
    """A plan with its own values, constants of what is compiled."""
    make = pruned_dot_general if pruned.kind == "matmul" else pruned_conv_general_dilated
    return Injection(pruned, make(pruned))


@functools.lru_cache(maxsize=1024)
def trained(plan: Plan) -> Injection:
    """A plan whose values are those of the layer's kernel; the same object each time, so that what
    was compiled with it is used again.
    """
    pruned = PrunedWeight(np.zeros(plan.pattern.entries, np.float32), plan)  # pyright: ignore
    make = pruned_dot_general if pruned.kind == "matmul" else pruned_conv_general_dilated
    return Injection(pruned, make(pruned, from_kernel=True))


@functools.lru_cache(maxsize=64)
def token(plans: tuple[tuple[str, Plan], ...]) -> object:
    """One object for equal plans: cheap to compare at each call of a jitted function."""
    return object()


def in_training() -> bool:
    """Whether this is traced inside of `js.nn.pruned`."""
    return training_plans.value is not None


def layers_of(plans: Mapping[str, PrunedWeight]) -> dict[str, PrunedWeight]:
    """The plans by the path of their layer: "params/block/conv/kernel" is of "block/conv".

    Raises:
        ValueError: for the plan of a leaf that is not called "kernel".
    """
    found = {}
    for path, plan in plans.items():
        layer, _, name = ("/" + path).rpartition("/")
        if name != "kernel":
            raise ValueError(f"the plan {path!r} is not of a layer's kernel")
        names = layer.split("/")[1:]
        found["/".join(names[1:] if names[:1] == ["params"] else names)] = plan
    return found
