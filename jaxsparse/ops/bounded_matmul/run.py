"""How `bounded_matmul` and whole networks run: in the way that is chosen; and what `js.explain` is
told of it.
"""

import functools
from typing import Any

import jax.numpy as jnp

from jaxsparse.bounded.activations import Activations
from jaxsparse.bounded.layer import Layer
from jaxsparse.ops.bounded_matmul import native as native
from jaxsparse.select.bounded import (
    CONVERGED,
    NETWORK,
    OP,
    SINGLE,
    BoundedProblem,
    NetworkProblem,
    against,
    network_against,
)
from jaxsparse.select.choice import Choice
from jaxsparse.select.select import choose
from jaxsparse.select.select import run as run_choice

Told = tuple[Choice | None, dict[str, str]]


def problem_of(p: Any, platform: str, batch: int, layer: Layer) -> BoundedProblem:
    """What the choice for one layer depends on."""
    sizes = batch, layer.n_in, layer.n_out, layer.distinct, layer.weights.shape[-1]
    return BoundedProblem(platform, *sizes, p.segment, p.record, p.dataflow)


def call(p: Any, platform: str, acts: Activations, layer: Layer) -> Activations:
    """One layer, in the way that is chosen."""
    problem = problem_of(p, platform, acts.values.shape[0], layer)
    choice = choose(OP, problem)
    branches = {way: functools.partial(native.call, p, platform, way) for way in choice.names}
    return run_choice(problem.known, choice, branches, jnp.int32(0))(acts, layer)


def describe(p: Any, name: str, batch: int, layer: Layer) -> Told:
    """For `js.explain`: the choice of implementation `name`, and what speaks against other ways."""
    if name == "reference" and p.dataflow != CONVERGED:
        return None, {}
    problem = problem_of(p, name, batch, layer)
    return choose(OP, problem), against(problem)


def network_problem(net: Any, platform: str, batch: int) -> NetworkProblem:
    """What the choice for a whole stack depends on."""
    return NetworkProblem(platform, batch, net.n_in, net.n_out, net.depth, net.widest, net.bundles)


def call_network(net: Any, platform: str, x: Any) -> Activations:
    """A whole stack in one call; a single layer is one of `bounded_matmul`'s."""
    problem = network_problem(net, platform, x.shape[0])
    choice = choose(NETWORK, problem)
    if choice.first == SINGLE:
        return call(*native.single(net, x))
    branches = {
        way: functools.partial(native.call_network, net, platform, way) for way in choice.names
    }
    return run_choice(problem.known, choice, branches, jnp.int32(0))(x)


def describe_network(net: Any, name: str, batch: int) -> Told:
    """For `js.explain`: as `describe`."""
    if name == "reference":
        return None, {}
    problem = network_problem(net, name, batch)
    return choose(NETWORK, problem), network_against(problem)
