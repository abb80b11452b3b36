"""What a checker must refuse: one error a line, where the comment says so. Never run."""

import jax.numpy as jnp
import numpy as np
from flax import nnx

import jaxsparse as js

x, w, rngs = jnp.ones((1, 8, 8, 4)), jnp.ones((1, 1, 4, 4)), nnx.Rngs(0)
mask = np.ones((1, 8, 8), np.bool_)
pruned = js.pruned.inspect(np.eye(4, dtype=np.float32))
layer = js.bounded.inspect(np.eye(4, dtype=np.float32), 0.0, 1.0)

js.masked_conv(x, w, mask, activation="tanh")  # error
js.masked_conv(x, w, mask, padding="FULL")  # error
js.masked_conv(x, w, mask, implementation="gpu")  # error
js.masked_conv([1.0], w, mask)  # error
js.masked_conv(x, w, mask, record=True).shape  # error
js.tile_index(mask, (4, 4), align="pixel")  # error
js.masked_matmul(x, w, granularity={"c": (1, 1)})  # error
js.sparse_attention(x, x, x, mask)  # error
js.pruned_conv(x, pruned, layout="HWCN")  # error
js.pruned_matmul(x, w)  # error
js.pruned.inspect(w, kind="convolution")  # error
js.bounded_matmul(x, layer, dataflow="persistent")  # error
js.pruned.tune(pruned, x, activation="tanh")  # error
js.variants("masked_pools")  # error
js.config(selection="dynamic")  # error
js.explain(lambda value: value)  # error
js.bounded.netwrok([layer])  # error
js.pruned.tunes(pruned, x)  # error
js.nn.torch.MaskedConv()  # error
js.nn.linen.MaskedConv(features=4, kernel_size=(3, 3), activation="tanh")  # error
js.nn.linen.MoE(num_experts=2, hidden=8, routing="best")  # error
js.nn.nnx.MaskedConv(4, 4, (3, 3), pading="SAME", rngs=rngs)  # error
js.nn.nnx.MaskedDense(4, 4, rngs=rngs, use_bais=False)  # error
js.nn.nnx.PrunedDense(4, 4, rngs=rngs)  # error
js.nn.nnx.MoE(4, 2, "8", rngs=rngs)  # error
js.nn.nnx.MaskedNorm(4, kind="instance", rngs=rngs)  # error
