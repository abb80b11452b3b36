"""What a user writes, on shapes that run anywhere: each op, layer and tool of the public API once,
with the type that a checker must find for its result. `test_user_types.py` runs and checks it.
"""

import tempfile
from typing import Any, assert_type

import jax
import jax.numpy as jnp
import numpy as np
from flax import nnx
from numpy.typing import NDArray

import jaxsparse as js
from jaxsparse.nn import linen as layers
from jaxsparse.select import Explanation, Variant

image = jnp.ones((1, 8, 8, 4))
kernel = jnp.full((3, 3, 4, 4), 0.1)
mask = np.zeros((1, 8, 8), np.bool_)
mask[:, 2:5, 3:7] = True
tokens = jnp.ones((6, 4))
weight = np.linspace(-1, 1, 16, dtype=np.float32).reshape(4, 4)


def masks_and_indices() -> js.TileIndex:
    """The path of the data: mask, words, index."""
    words = assert_type(js.pack_mask(mask), jax.Array)
    assert_type(js.unpack_mask(words, 8), jax.Array)
    assert_type(js.lengths_mask(np.array([2, 3]), 4), jax.Array)
    index = assert_type(js.tile_index(mask, (4, 4), ordered=True, align="grid"), js.TileIndex)
    assert_type(index.to_mask(), jax.Array)
    assert_type(index.tile_mask(), jax.Array)
    assert_type(index.density(), jax.Array)
    assert_type((index.ids, index.count, index.overflow), tuple[jax.Array, jax.Array, jax.Array])
    assert_type((index.tile, index.capacity), tuple[tuple[int, int], int])
    assert_type(js.affected_index(mask, [[(3, 1)], [(3, 2)]], (4, 4)), tuple[js.TileIndex, ...])
    assert_type(js.token_index(mask[0, 0]), js.TileIndex)
    js.show(mask)
    js.show(index)
    return index


def convolutions(index: js.TileIndex) -> None:
    """Masked convolutions; `record` decides what comes back."""
    y = js.masked_conv(image, kernel, mask, padding=((1, 1), 1), preferred_element_type="float32")
    assert_type(y, jax.Array)
    y = js.masked_conv(image, kernel, index, activation="relu6", base=y, precision="highest")
    assert_type(y, jax.Array)
    recorded = js.masked_conv(image, kernel, index, activation="relu6", record=True)
    assert_type(recorded, tuple[jax.Array, js.recorder.Recorder])
    found, recorder = js.masked_conv(image, kernel, index, activation="relu6", record=2)
    assert_type(js.masked_conv(found, kernel, index, recorder=recorder), jax.Array)
    assert_type(recorder.share(js.recorder.ZERO), jax.Array)
    assert_type(js.recorder.choose_segment(4096, dataflow="slab"), int)
    stack = js.masked_conv_stack(image, [kernel, kernel], index, [image, image], activations="relu")
    assert_type(stack, tuple[jax.Array, ...])


def products() -> None:
    """Masked and grouped products, and the routes to them."""
    some = np.array([True, False, True, True, False, True])
    assert_type(js.masked_dense(tokens, weight, some, activation="gelu"), jax.Array)
    blocks = np.ones((3, 2), np.bool_)
    assert_type(js.masked_matmul(tokens, weight, a_mask=blocks, granularity=(2, 2)), jax.Array)
    y = js.masked_matmul(tokens, weight, out_mask=blocks, granularity={"out": (2, 2)})
    assert_type(y, jax.Array)
    routing = assert_type(js.route(np.zeros((6, 1), np.int32), 2), js.Routing)
    assert_type(routing.group_sizes, jax.Array)
    queries = jnp.ones((1, 32, 2, 4))
    causal = js.create_block_mask(lambda b, h, q, k: q >= k, 1, 1, 32, 32, 16)
    assert_type(js.sparse_attention(queries, queries, queries, causal), jax.Array)
    assert_type(js.sparse_ffn(tokens, weight, weight.T, top_k=3), jax.Array)
    out, lse = js.sparse_attention(queries, queries, queries, causal, return_lse=True)
    assert_type((out, lse), tuple[jax.Array, jax.Array])
    experts = jnp.stack([weight, weight])
    y = js.grouped_matmul(
        tokens, experts, routing.group_sizes, gather=routing.gather, scatter=routing.scatter
    )
    assert_type(y, jax.Array)


def attention() -> js.BlockMask:
    """Masks of attention in blocks, and packed tokens."""
    made = assert_type(
        js.create_block_mask(lambda b, h, q, k: q >= k, None, None, 16, 16, 16), js.BlockMask
    )
    assert_type(made & js.block_masks.causal(16, block_size=16), js.BlockMask)
    assert_type(js.BlockMask.from_dense(np.ones((1, 1, 16, 16), np.bool_), (16, 32)), js.BlockMask)
    assert_type((made.to_dense(), made.sparsity()), tuple[jax.Array, jax.Array])
    assert_type(js.block_masks.document(np.array([0, 3, 6]), 6, causal=True), js.BlockMask)
    packed, packing = js.pack_tokens(tokens[None], np.ones((1, 6), np.bool_), capacity=8)
    assert_type(js.unpack_tokens(packed, packing), jax.Array)
    assert_type(packing.block_mask(), js.BlockMask)
    js.show(made)
    return made


def experts_over_devices(ids: jax.Array, x: jax.Array) -> jax.Array:
    """Inside of `jax.shard_map` over the axis "experts"."""
    rows, sent = js.dispatch(x, js.route(ids, 4), "experts", capacity=8)
    assert_type((rows, sent), tuple[jax.Array, js.Exchange])
    assert_type((sent.group_sizes, sent.overflow), tuple[jax.Array, jax.Array])
    return assert_type(js.combine(rows, sent, weights=np.ones((6, 1))), jax.Array)


def tokens_over_devices(q: jax.Array, mask: js.BlockMask) -> jax.Array:
    """Inside of `jax.shard_map` over the axis "seq"."""
    mine = assert_type(mask.take(q_blocks=np.arange(2)), js.BlockMask)
    out, lse = js.ring_attention(q, q, q, mine, "seq", return_lse=True, slopes=np.ones(2))
    assert_type((out, lse), tuple[jax.Array, jax.Array])
    return assert_type(js.ring_attention(q, q, q, mask, ("host", "seq"), scale=2.0), jax.Array)


def frozen_weights() -> js.PrunedWeight:
    """Pruned once, then run."""
    kept = assert_type(js.prune.magnitude(weight, 0.5), NDArray[np.bool_])
    pruned = assert_type(js.pruned.inspect(weight, mask=kept), js.PrunedWeight)
    assert_type(js.pruned_matmul(tokens, pruned, activation="silu"), jax.Array)
    assert_type(pruned.to_dense(), jax.Array)
    assert_type(pruned.sparsity, float)
    assert_type(js.pruned.statistics(pruned), js.pruned.Statistics)
    conv = js.pruned.inspect(kernel, kind="conv")
    assert_type(js.pruned_conv(image, conv, padding="VALID", layout="NHWC"), jax.Array)
    params = {"dense": {"kernel": jnp.asarray(weight)}}
    model = assert_type(js.prune_model(params, 0.5, smallest=1), js.pruned.PrunedModel)
    assert_type(model.masked(params), dict[str, dict[str, jax.Array]])
    assert_type(model.values(params), dict[str, js.PrunedWeight])
    with tempfile.TemporaryDirectory() as folder:
        tuned = js.pruned.tune(
            pruned, tokens, seconds=0.1, folder=folder, progress=False, activation="relu"
        )
        assert_type(tuned, js.PrunedWeight)
    return pruned


def bounded_layers() -> None:
    """Saturated layers: inspected, run alone and as a stack."""
    layer = assert_type(js.bounded.inspect(weight, -0.1, 32.0), js.bounded.Layer)
    acts = js.bounded_matmul(tokens, layer, dataflow="row", record=True)
    assert_type(acts, js.bounded.Activations)
    assert_type(acts.materialize(), jax.Array)
    assert_type(js.bounded.categories(acts), NDArray[np.int32])
    network = assert_type(js.bounded.network([layer, layer]), js.bounded.Network)
    assert_type(network(tokens), js.bounded.Activations)
    assert_type(js.bounded.converged([layer], threshold=1)(tokens), js.bounded.Activations)
    assert_type(layer.to_dense(), NDArray[np.float64])
    assert_type(js.bounded.strokes(2), NDArray[np.uint8])


def flax_layers(index: js.TileIndex, pruned: js.PrunedWeight) -> None:
    """Layers of both flaxes, their constructors spelled out."""
    key, some = jax.random.key(0), np.ones(6, np.bool_)
    conv = layers.MaskedConv(features=4, kernel_size=(3, 3), activation="relu", name="conv")
    assert_type(conv.bind(conv.init(key, image))(image, index), jax.Array)
    dense = layers.MaskedDense(features=4, use_bias=False)
    assert_type(dense.bind(dense.init(key, tokens))(tokens, some), jax.Array)
    frozen = layers.PrunedDense(features=4, pruned=pruned)
    assert_type(frozen.bind(frozen.init(key, tokens))(tokens), jax.Array)
    moe = js.nn.linen.MoE(num_experts=2, hidden=8, activation="swiglu", routing="top_k")
    assert_type(moe.bind(moe.init(key, tokens))(tokens), tuple[jax.Array, jax.Array])

    norm = layers.MaskedNorm(kind="group", num_groups=2)
    assert_type(norm.bind(norm.init(key, image))(image, mask), jax.Array)

    rngs = nnx.Rngs(0)
    one = js.nn.nnx.MaskedConv(4, 4, (3, 3), padding="SAME", activation="relu", rngs=rngs)
    assert_type(one(image, mask, base=image), jax.Array)
    two = js.nn.nnx.MaskedDense(4, 4, dtype=jnp.float32, rngs=rngs)
    assert_type(two(tokens, js.token_index(some)), jax.Array)
    assert_type(js.nn.nnx.PrunedDense(4, 4, pruned=pruned, rngs=rngs)(tokens), jax.Array)
    plan = js.pruned.inspect(kernel, kind="conv")
    repeated = js.nn.nnx.PrunedConv(4, 4, (3, 3), padding="CIRCULAR", pruned=plan, rngs=rngs)
    assert_type(repeated(image), jax.Array)
    mixture = js.nn.nnx.MoE(4, 2, 8, top_k=2, param_dtype=jnp.float32, rngs=rngs)
    assert_type(mixture(tokens, some), tuple[jax.Array, jax.Array])
    given = js.nn.nnx.MaskedNorm(4, kind="layer", momentum=0.9, rngs=rngs)
    assert_type(given(image, index, base=image), jax.Array)
    bounded = js.nn.nnx.BoundedDense(np.ones((4, 4)), upper=1.0)
    assert_type(bounded(tokens), js.bounded.Activations)
    near = js.block_masks.sliding_window(6, block_size=16, left=2)
    heads = js.nn.nnx.SparseAttention(2, 4, decode=False, rngs=rngs)
    assert_type(heads(tokens[None], mask=near), jax.Array)
    wide = layers.SparseAttention(num_heads=2, attention_fn=js.nn.sparse_attention_fn(near))
    assert_type(wide.bind(wide.init(key, tokens))(tokens, mask=near), jax.Array)
    linear = nnx.Linear(4, 4, dot_general=js.nn.pruned_dot_general(pruned), rngs=rngs)
    linear(tokens)


def settings_and_tools(index: js.TileIndex) -> None:
    """Choosing, explaining and tuning."""

    def model(x: jax.Array) -> jax.Array:
        return js.masked_conv(x, kernel, index, implementation=("cpu", "reference"))

    with js.config(selection="static", deterministic=True), js.checked():
        assert_type(model(image), jax.Array)
    told = assert_type(js.explain(model, image), Explanation[jax.Array])
    assert_type(told.result, jax.Array)
    assert_type(js.variants("masked_conv"), list[Variant])
    table = js.tune(
        model, image, masks="blobs", densities=0.5, calls=1, samples=1, cache=False, progress=False
    )
    assert_type(table, js.TuningTable)
    assert_type(js.TuningTable.from_json(table.to_json()), js.TuningTable)
    with js.config(tuning=table):
        model(image)


if __name__ == "__main__":
    shared = masks_and_indices()
    convolutions(shared)
    products()
    attention()
    untyped: Any = jax  # jax types neither meshes nor shard_map for a strict checker
    mesh, parts = untyped.make_mesh((1,), ("experts",)), untyped.P
    on_one = untyped.shard_map(
        experts_over_devices, mesh=mesh, in_specs=parts(), out_specs=parts("experts")
    )
    on_one(np.zeros((6, 1), np.int32), tokens)
    weights = frozen_weights()
    bounded_layers()
    flax_layers(shared, weights)
    settings_and_tools(shared)
    print("done")
