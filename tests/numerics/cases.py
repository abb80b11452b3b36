"""The cases of docs/numerics.md: every operation with floating-point numbers, and the indices that
they run on.
"""

import dataclasses
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from fuzz import oracle
from numerics.case import DTYPES, Case

import jaxsparse as js
from jaxsparse.ops.top_experts.api import top_experts

RNG = np.random.default_rng(27)
SAME = ((1, 1), ((1, 1), (1, 1)), (1, 1))


def drawn(*shape: int, scale: float = 0.5) -> np.ndarray:
    """Normal ones, exact in bfloat16: then both dtypes have the same operands."""
    values = RNG.standard_normal(shape).astype(np.float32) * np.float32(scale)
    return values.astype(jnp.bfloat16).astype(np.float32)


def some(*shape: int, share: float = 0.4) -> np.ndarray:
    return RNG.random(shape) < share


def frozen(*shape: int, share: float = 0.1) -> np.ndarray:
    return np.where(some(*shape, share=share), drawn(*shape), 0).astype(np.float32)


def convolution(groups: int, channels: int, outputs: int) -> Case:
    floats = {"x": drawn(4, 18, 21, channels), "kernel": drawn(3, 3, channels // groups, outputs)}

    def meaning(x: Any, kernel: Any, mask: Any) -> Any:
        y = oracle.convolution(x, kernel, SAME, groups)
        return np.where(mask[..., None], np.maximum(y, 0), 0)

    return Case(
        "masked_conv",
        floats,
        lambda x, kernel, mask: js.masked_conv(x, kernel, mask, groups=groups, activation="relu"),
        {"mask": some(4, 18, 21)},
        meaning,
        sizes={"kh": 3, "kw": 3, "c": channels, "groups": groups},
        rows={"x": 0, "mask": 0},
        name=f"masked_conv, {groups} groups",
    )


def stack() -> Case:
    floats = {"x": drawn(3, 17, 19, 24), "one": drawn(3, 3, 24, 24, scale=0.1)}
    floats |= {"two": drawn(3, 3, 24, 24, scale=0.1)}

    def call(x: Any, one: Any, two: Any, mask: Any) -> Any:
        return js.masked_conv_stack(x, [one, two], mask, [x, x], activations=["relu", None])[-1]

    def meaning(x: Any, one: Any, two: Any, mask: Any) -> Any:
        y = x
        for kernel, low in ((one, 0), (two, -np.inf)):
            after = np.maximum(oracle.convolution(y, kernel, SAME, 1), low)
            y = np.where(mask[..., None], after, x)
        return y

    rows = {"x": 0, "mask": 0}
    mask, sizes = {"mask": some(3, 17, 19)}, {"layers": 2, "kh": 3, "kw": 3, "c": 24}
    return Case("masked_conv_stack", floats, call, mask, meaning, sizes=sizes, rows=rows)


def dense() -> Case:
    floats = {"x": drawn(301, 70), "w": drawn(70, 91), "bias": drawn(91)}

    def meaning(x: Any, w: Any, bias: Any, mask: Any) -> Any:
        return np.where(mask[:, None], x @ w + bias, 0)

    def call(x: Any, w: Any, bias: Any, mask: Any) -> Any:
        return js.masked_dense(x, w, mask, bias=bias)

    mask, rows = {"mask": some(301)}, {"x": 0, "mask": 0}
    return Case("masked_dense", floats, call, mask, meaning, sizes={"d": 70}, rows=rows)


def norm(kind: str) -> Case:
    floats = {"x": drawn(5, 30, 32), "scale": drawn(32)}
    options: dict[str, Any] = {"kind": kind, "epsilon": 0.1}

    def meaning(x: Any, scale: Any, mask: Any) -> Any:
        mean, var = oracle.moments(x, mask, kind, 1)
        return np.where(mask[..., None], (x - mean) / np.sqrt(var + 0.1) * scale, 0)

    return Case(
        "masked_norm",
        floats,
        lambda x, scale, mask: js.masked_norm(x, mask, scale=scale, **options),
        {"mask": some(5, 30)},
        meaning,
        lambda x, scale, mask: abs(x).max() / 0.1**0.5 * abs(scale).max(),
        {"entries": 5 * 30 if kind == "batch" else 32},
        {} if kind == "batch" else {"x": 0, "mask": 0},
        name=f"masked_norm {kind}",
    )


def pool(kind: str) -> Case:
    def meaning(x: Any, mask: Any) -> Any:
        geometry = ((2, 2), ((0, 0), (0, 0)), (1, 1))
        total, number, top = 0.0, 0, -np.inf
        taps = (oracle.taps(v, (3, 3), geometry) for v in (x, mask))
        for (_, values), (_, active) in zip(*taps, strict=True):
            active = active[..., None]
            total, number = total + np.where(active, values, 0), number + active
            top = np.maximum(top, np.where(active, values, -np.inf))
        y = top if kind == "max" else total / np.maximum(number, 1)
        return np.where(number > 0, y, 0)

    return Case(
        "masked_pool",
        {"x": drawn(3, 21, 19, 24)},
        lambda x, mask: js.masked_pool(x, mask, (3, 3), strides=(2, 2), padding="VALID", kind=kind),
        {"mask": some(3, 21, 19)},
        meaning,
        lambda x, mask: abs(x).max(),
        {"kh": 3, "kw": 3},
        {"x": 0, "mask": 0},
        name=f"masked_pool {kind}",
    )


def grouped() -> Case:
    floats = {"lhs": drawn(200, 130), "rhs": drawn(6, 130, 90), "row_weights": drawn(400)}
    data = {"group_sizes": np.array([90, 0, 130, 7, 99, 70], np.int32)}
    data |= {"gather": RNG.permutation(400).astype(np.int32) // 2}
    data |= {"scatter": data["gather"]}
    sizes = {"k": 130, "top_k": 2}

    def meaning(lhs: Any, rhs: Any, group_sizes: Any, **more: Any) -> Any:
        return oracle.grouped(lhs, rhs, group_sizes, **more)

    return Case("grouped_matmul", floats, js.grouped_matmul, data, meaning, sizes=sizes)


def matmul() -> Case:
    floats = {"a": drawn(4, 70, 96), "b": drawn(96, 120)}
    data = {"a_mask": some(4, 9, 12), "b_mask": some(12, 15), "out_mask": some(4, 9, 15)}
    sides = {"a_mask": (70, 96), "b_mask": (96, 120), "out_mask": (70, 120)}

    def meaning(a: Any, b: Any, **masks: Any) -> Any:
        whole = {
            n: v.repeat(8, -2).repeat(8, -1)[..., : sides[n][0], : sides[n][1]]
            for n, v in masks.items()
        }
        y = np.where(whole["a_mask"], a, 0) @ np.where(whole["b_mask"], b, 0)
        return np.where(whole["out_mask"], y, 0)

    return Case(
        "masked_matmul",
        floats,
        lambda **given: js.masked_matmul(**given, granularity=(8, 8)),
        data,
        meaning,
        sizes={"k": 96},
        rows={"a": 0, "a_mask": 0, "out_mask": 0},
    )


def kept() -> Case:
    mask = some(8, 6)
    places, block = np.argwhere(mask), (16, 16)

    def call(values: Any, b: Any) -> Any:
        return js.kept_matmul(values, js.kept_blocks(jnp.asarray(mask), (128, 96), block), b)

    def meaning(values: Any, b: Any) -> Any:
        a = np.zeros((128, 96))
        for at, (i, j) in enumerate(places):
            a[16 * i : 16 * i + 16, 16 * j : 16 * j + 16] = values[at]
        return a @ b

    floats = {"values": drawn(48, 16, 16), "b": drawn(96, 70)}
    return Case("kept_matmul", floats, call, {}, meaning, sizes={"k": 96})


def attention() -> Case:
    keep = some(1, 1, 9, 9, share=0.5).repeat(16, 2).repeat(16, 3)[..., :130, :140]
    q, k, v = drawn(3, 130, 4, 32), drawn(3, 140, 2, 32), drawn(3, 140, 2, 32)

    def meaning(q: Any, k: Any, v: Any, keep: Any) -> Any:
        more = {"scale": 32**-0.5, "cap": None, "slopes": None, "bias": 0.0}
        return oracle.attention(q, k, v, keep, **more)[0]

    def size(q: Any, k: Any, v: Any, keep: Any) -> Any:
        largest = abs(q).sum(-1).max() * abs(k).max() * 32**-0.5
        return abs(v).max() * (1 + largest)

    return Case(
        "sparse_attention",
        {"q": q, "k": k, "v": v},
        lambda q, k, v, keep: js.sparse_attention(q, k, v, js.BlockMask.from_dense(keep, 16)),
        {"keep": keep},
        meaning,
        size,
        {"head": 32, "s": 140},
        {"q": 0, "k": 0, "v": 0},
    )


def ring() -> Case:
    """Over as many devices as there are, four at most."""
    devices = min(4, jax.device_count())
    axis = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((devices,), ("seq",), axis, devices=jax.devices()[:devices])
    by, alone = jax.P(None, "seq"), attention()

    def call(q: Any, k: Any, v: Any, keep: Any) -> Any:
        body = lambda q, k, v, mask: js.ring_attention(q, k, v, mask, "seq")  # noqa: E731
        run = jax.shard_map(body, mesh=mesh, in_specs=(by, by, by, jax.P()), out_specs=by)
        return run(q, k, v, js.BlockMask.from_dense(keep, 16))

    return dataclasses.replace(
        alone,
        op="ring_attention",
        floats={"q": drawn(3, 128, 4, 32), "k": drawn(3, 192, 2, 32), "v": drawn(3, 192, 2, 32)},
        call=call,
        data={"keep": some(1, 1, 8, 12, share=0.5).repeat(16, 2).repeat(16, 3)},
        sizes={"head": 32, "s": 192, "devices": devices},
    )


def network(gated: bool) -> Case:
    floats = {"x": drawn(41, 64), "w_up": drawn(64, 300), "w_down": drawn(300, 64)}
    floats |= {"w_gate": drawn(64, 300)} if gated else {}

    def meaning(x: Any, w_up: Any, w_down: Any, w_gate: Any = None) -> Any:
        if w_gate is None:
            return np.maximum(x @ w_up, 0) @ w_down
        return (np.maximum(x @ w_gate, 0) * (x @ w_up)) @ w_down

    call, sizes = js.sparse_ffn, {"d": 64, "f": 300}
    name = f"sparse_ffn{', gated' * gated}"
    return Case("sparse_ffn", floats, call, {}, meaning, sizes=sizes, rows={"x": 0}, name=name)


def pruned(kind: str) -> Case:
    conv = kind == "conv"
    w = frozen(3, 3, 24, 40, share=0.2) if conv else frozen(200, 150)
    weights = {d: js.pruned.inspect(w.astype(d), kind=kind) for d in DTYPES}
    run = js.pruned_conv if conv else js.pruned_matmul
    options: dict[str, Any] = {"activation": "relu"}

    def product(x: Any, w: Any) -> Any:
        return oracle.convolution(x, w, SAME, 1) if conv else x @ w

    return Case(
        f"pruned_{kind}",
        {"x": drawn(3, 13, 14, 24) if conv else drawn(70, 200)},
        lambda x: run(x, weights[x.dtype.name], **options),
        {},
        lambda x: np.maximum(product(x, w.astype(np.float64)), 0),
        lambda x: product(abs(x), abs(w.astype(np.float64))),
        {"kh": 3, "kw": 3, "c": 24} if conv else {"k": 200},
        {"x": 0},
    )


def saturated(op: str) -> Case:
    layers = [
        (frozen(150, 150, share=0.2), drawn(150)) for _ in range(1 + (op != "bounded_matmul"))
    ]
    made = [js.bounded.inspect(w, bias, 2.0) for w, bias in layers]

    def call(x: Any) -> Any:
        one = op == "bounded_matmul"
        acts = js.bounded_matmul(x, made[0]) if one else js.bounded.network(made)(x)
        return acts.materialize()

    def through(x: Any, top: float, alone: Any) -> Any:
        for w, bias in layers:
            x = np.clip(x @ alone(w.astype(np.float64)) + alone(bias.astype(np.float64)), 0, top)
        return x

    return Case(
        op,
        {"x": abs(drawn(70, 150))},
        call,
        {},
        lambda x: through(x, 2.0, np.asarray),
        lambda x: through(x, np.inf, np.abs),
        {"layers": len(layers), "n_in": 150},
        {"x": 0},
        ("float32",),
    )


def best(logits: Any) -> Any:
    """The two largest probabilities of each token."""
    share = np.exp(logits) / np.exp(logits).sum(1, keepdims=True)
    return np.sort(share)[:, :-3:-1]


def indices() -> list[Case]:
    mask = {"mask": some(4, 37, 45)}
    ids = {"ids": RNG.integers(0, 12, (200, 2)).astype(np.int32)}
    listed = lambda mask: js.tile_index(mask, (4, 4), ordered=True)  # noqa: E731
    tokens = lambda mask: js.token_index(mask)  # noqa: E731
    unpack = lambda words: js.unpack_mask(words, 45)  # noqa: E731
    words = RNG.integers(0, 2**13, (4, 37, 2)).astype(np.uint32)
    reach = lambda mask: js.affected_index(mask, [[(3, 1)], [(3, 2)]], (4, 4))  # noqa: E731
    own = ("float32",)
    lengths = lambda n: jnp.asarray(js.lengths_mask(n, 50))  # noqa: E731
    reached = lambda mask: js.mask.propagate(mask, (3, 2), strides=2)  # noqa: E731
    read = lambda mask: js.mask.needed(mask, (3, 3))  # noqa: E731
    blocks = lambda mask: js.kept_blocks(mask, (130, 200), (16, 16))  # noqa: E731

    def attended(n: Any) -> Any:
        mask = js.create_block_mask(lambda b, h, q, kv: kv < n[b] + q, 3, None, 80, 90, 16)
        by_row = up_to(mask.kv_counts, mask.kv_blocks, mask.kv_slots)
        return by_row, up_to(mask.q_counts, mask.q_blocks, mask.q_slots), mask.words

    def up_to(counts: Any, *lists: Any) -> Any:
        """What is past a count is undefined."""
        own = counts[..., None] > jnp.arange(lists[0].shape[-1])
        return counts, [jnp.where(own, values, 0) for values in lists]

    put = lambda x, mask: js.pack_tokens(x, mask)[0]  # noqa: E731
    back = lambda x, mask: js.unpack_tokens(*js.pack_tokens(x, mask), base=-x)  # noqa: E731
    return [
        Case("tile_index", {}, listed, mask, dtypes=("float32",)),
        Case("token_index", {}, tokens, {"mask": some(400)}, dtypes=("float32",)),
        Case("affected_index", {}, reach, mask, dtypes=("float32",)),
        Case("unpack_mask", {}, unpack, {"words": words}, rows={"words": 0}, dtypes=("float32",)),
        Case("pack_mask", {}, js.pack_mask, mask, rows={"mask": 0}, dtypes=("float32",)),
        Case(
            "lengths_mask",
            {},
            lengths,
            {"n": RNG.integers(-3, 60, 40, np.int32)},
            rows={"n": 0},
            dtypes=own,
        ),
        Case("mask.propagate", {}, reached, mask, rows={"mask": 0}, dtypes=own),
        Case("mask.needed", {}, read, mask, rows={"mask": 0}, dtypes=own),
        Case("kept_blocks", {}, blocks, {"mask": some(9, 13)}, dtypes=own),
        Case(
            "create_block_mask", {}, attended, {"n": RNG.integers(0, 90, 3, np.int32)}, dtypes=own
        ),
        Case("route", {}, lambda ids: js.route(ids, 12), ids, dtypes=("float32",)),
        Case("pack_tokens", {"x": drawn(4, 90, 24)}, put, {"mask": some(4, 90)}),
        Case("unpack_tokens", {"x": drawn(4, 90, 24)}, back, {"mask": some(4, 90)}),
        Case(
            "top_experts",
            {"logits": drawn(70, 12)},
            lambda logits: [(found := top_experts(logits, 2)).weights, found.ids, found.sums],
            {},
            best,
            lambda logits: 1 + abs(logits).max(),
            {"experts": 12},
            dtypes=("float32",),
        ),
    ]


CASES = [
    convolution(1, 40, 56),
    convolution(24, 24, 24),
    stack(),
    dense(),
    *(norm(kind) for kind in ("batch", "layer")),
    *(pool(kind) for kind in ("max", "avg")),
    grouped(),
    matmul(),
    kept(),
    attention(),
    ring(),
    *(network(gated) for gated in (False, True)),
    *(pruned(kind) for kind in ("matmul", "conv")),
    *(saturated(op) for op in ("bounded_matmul", "bounded.network")),
    *indices(),
]
