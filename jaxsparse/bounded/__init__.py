"""Saturated layers, y = min(max(x W + b, 0), upper): inspected once, run with recorder and proofs.

`inspect` -> `Layer` -> `js.bounded_matmul` (one layer) or `network` (a whole stack in one call).
"""

from typing import TYPE_CHECKING

from jaxsparse.bounded.activations import Activations as Activations
from jaxsparse.bounded.activations import categories as categories
from jaxsparse.bounded.images import challenge_inputs as challenge_inputs
from jaxsparse.bounded.images import strokes as strokes
from jaxsparse.bounded.inspect import inspect as inspect
from jaxsparse.bounded.layer import Layer as Layer
from jaxsparse.bounded.layer import stack as stack
from jaxsparse.bounded.packed import Network as Network
from jaxsparse.bounded.radixnet import BIASES as BIASES
from jaxsparse.bounded.radixnet import radixnet as radixnet
from jaxsparse.bounded.radixnet import radixnet_layer as radixnet_layer
from jaxsparse.bounded.readers import read_categories as read_categories
from jaxsparse.bounded.readers import read_images as read_images
from jaxsparse.bounded.readers import read_layer as read_layer
from jaxsparse.core.lazy import lazy

if TYPE_CHECKING:
    from jaxsparse.ops.bounded_matmul.converged import converged as converged
    from jaxsparse.ops.bounded_network.api import network as network

__all__ = [
    "BIASES",
    "Activations",
    "Layer",
    "Network",
    "categories",
    "challenge_inputs",
    "converged",
    "inspect",
    "network",
    "radixnet",
    "radixnet_layer",
    "read_categories",
    "read_images",
    "read_layer",
    "stack",
    "strokes",
]

if not TYPE_CHECKING:  # checkers see the imports above, and refuse other names
    __getattr__ = lazy(
        __name__,
        {
            "converged": "jaxsparse.ops.bounded_matmul.converged",
            "network": "jaxsparse.ops.bounded_network.api",
        },
    )
