"""Both layers and flax's own behind one face: make, parameters, call."""

import jax
import jax.numpy as jnp
import numpy as np
from flax import linen as flax_linen
from flax import nnx as flax_nnx

import jaxsparse as js
from jaxsparse import nn

IN, OUT = 4, 6


class Linen:
    """A linen layer bound to its parameters."""

    def __init__(self, layer, x_shape, key=0):
        self.layer = layer
        self.params = layer.init(jax.random.key(key), jnp.zeros(x_shape, layer.param_dtype))

    @classmethod
    def masked(cls, x_shape=(2, 9, 11, IN), **options):
        return cls(nn.linen.MaskedConv(OUT, options.pop("kernel_size", (3, 3)), **options), x_shape)

    @classmethod
    def flax(cls, x_shape=(2, 9, 11, IN), **options):
        return cls(flax_linen.Conv(OUT, options.pop("kernel_size", (3, 3)), **options), x_shape)

    def pure(self):
        """(function of parameters and arguments, parameters)."""
        return self.layer.apply, self.params

    def __call__(self, *args, **kwargs):
        return self.layer.apply(self.params, *args, **kwargs)


class Nnx:
    """An nnx layer."""

    def __init__(self, layer):
        self.layer = layer

    @classmethod
    def masked(cls, **options):
        size = options.pop("kernel_size", (3, 3))
        return cls(nn.nnx.MaskedConv(IN, OUT, size, rngs=flax_nnx.Rngs(0), **options))

    @classmethod
    def flax(cls, **options):
        size = options.pop("kernel_size", (3, 3))
        return cls(flax_nnx.Conv(IN, OUT, size, rngs=flax_nnx.Rngs(0), **options))

    def pure(self):
        graph, state = flax_nnx.split(self.layer)

        def call(state, *args, **kwargs):
            return flax_nnx.merge(graph, state)(*args, **kwargs)

        return call, state

    def __call__(self, *args, **kwargs):
        return self.layer(*args, **kwargs)


FACES = {"linen": Linen, "nnx": Nnx}


def image(rng, shape=(2, 9, 11, IN), dtype=jnp.float32):
    return jnp.asarray(rng.standard_normal(shape), dtype)


def mask_for(y, rng, density=0.4):
    return jnp.asarray(rng.random(y.shape[:-1]) < density)


def expected(y, mask, base=None):
    return np.where(np.asarray(mask)[..., None], y, 0.0 if base is None else base)


def index(mask):
    return js.tile_index(mask, (2, 2))
