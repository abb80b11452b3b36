"""Routing of tokens to experts, on one device and over a mesh."""

from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import PartitionSpec as P

import jaxsparse as js
from fuzz import oracle
from fuzz.problem import Arrays, Draw, Problem, bits
from jaxsparse.ops.top_experts.api import top_experts as best_experts


def route(draw: Draw) -> Problem:
    """Ids of any integer type; some name no expert."""
    tokens, top_k, experts = draw.lead(200), draw.size(6), draw.size(70) - 1
    dtype = draw.pick(np.int32, np.int32, np.int16, np.uint8, np.uint32)

    def data(rng: np.random.Generator) -> Arrays:
        ids = rng.integers(0, max(experts, 1), (tokens, top_k))
        bad = rng.random(ids.shape) < rng.choice([0.0, 0.1, 1.0])
        return {"ids": np.where(bad, rng.integers(-2, 120, ids.shape), ids).astype(dtype)}

    def meaning(ids: np.ndarray) -> Any:
        flat = ids.reshape(-1).astype(np.int64)
        bucket = np.where((flat >= 0) & (flat < experts), flat, experts)
        order = np.argsort(bucket, kind="stable")
        sizes = np.bincount(bucket, minlength=experts + 1)[:experts]
        return js.Routing(order, order // top_k, order // top_k, sizes)

    text = f"{np.dtype(dtype)}[{tokens}, {top_k}], {experts} experts"
    call = lambda ids: js.route(ids, experts)  # noqa: E731
    return Problem(text, call, meaning, {}, 1, data, split={"ids": 0}, explicit=False)


def top_experts(draw: Draw) -> Problem:
    """Logits in eighths, some of which are exactly equal; or any logits, which have derivatives."""
    tokens, experts = draw.lead(90), draw.size(70)
    top_k, normalize, masked = draw.size(experts), draw.chance(0.5), draw.chance(0.5)
    equal = draw.chance(0.5)

    def eighths(rng: np.random.Generator, shape: tuple[int, ...]) -> np.ndarray:
        return np.round(8 * rng.standard_normal(shape)) / 8 + 0.0  # no -0

    def edges(logits: Any, mask: Any = None) -> Any:
        return [np.diff(np.sort(logits, -1)) + 1e-300]  # which of two is larger

    def call(logits: Any, mask: Any = None) -> Any:
        return tuple(best_experts(logits, top_k, mask=mask, normalize=normalize))

    def meaning(logits: Any, mask: Any = None) -> Any:
        counts = np.ones(tokens, bool) if mask is None else mask
        share = np.exp(logits - logits.max(-1, keepdims=True))
        share /= share.sum(-1, keepdims=True)
        ids = oracle.best(logits, top_k)
        weights = np.take_along_axis(share, ids, -1)
        weights = weights / weights.sum(-1, keepdims=True) if normalize else weights
        ids = np.where(counts[:, None], ids, -1)
        return ids, weights * counts[:, None], (share * counts[:, None]).sum(0)

    given = f"top_k {top_k}, normalize {normalize}, mask {masked}, equal {equal}"
    return Problem(
        f"[{tokens}, {experts}], {given}",
        call,
        meaning,
        {"logits": ((tokens, experts), jnp.dtype("float32"))},
        tokens + experts,
        lambda rng: {"mask": bits(rng, (tokens,))} if masked else {},
        smooth=not equal,
        edges=edges,
        split=dict.fromkeys(["logits", *["mask"] * masked], 0),
        wide=eighths if equal else None,
        loose=4.0,
    )


def dispatch(draw: Draw) -> Problem:
    """Tokens to experts of other devices and back, on as many devices as JAX sees, four at most."""
    devices = min(4, jax.device_count())
    tokens, each, top_k = draw.size(12), draw.size(3), draw.size(3)
    depth, outputs, experts = draw.size(20), draw.size(20), devices * each
    weighs, dtype = draw.chance(0.5), draw.dtype()
    floats = {"x": ((devices * tokens, depth), dtype)}
    floats |= {"up": ((experts, depth, outputs), dtype)}
    if weighs:
        floats["weights"] = ((devices * tokens, top_k), jnp.dtype("float32"))
    mesh = jax.make_mesh(
        (devices,), ("e",), (jax.sharding.AxisType.Auto,), devices=jax.devices()[:devices]
    )

    def local(ids: Any, x: Any, up: Any, weights: Any) -> Any:
        rows, sent = js.dispatch(x, js.route(ids, experts), "e")
        y = js.grouped_matmul(rows, up, sent.group_sizes)
        return js.combine(y, sent, weights), sent.overflow[None]

    def call(x: Any, up: Any, ids: Any, weights: Any = None) -> Any:
        run = jax.shard_map(local, mesh=mesh, in_specs=P("e"), out_specs=P("e"))
        return run(ids, x, up, weights)

    def meaning(x: Any, up: Any, ids: Any, weights: Any = None) -> Any:
        used = (ids >= 0) * (1.0 if weights is None else weights)
        each = np.einsum("td,tkdh->tkh", x, up[ids], optimize=True)
        return np.einsum("tk,tkh->th", used, each), np.zeros(devices, bool)

    def data(rng: np.random.Generator) -> Arrays:
        most = rng.integers(1, experts + 1)
        return {"ids": rng.integers(-1, most, (devices * tokens, top_k)).astype(np.int32)}

    text = f"{floats}, {experts} experts, top_k {top_k}"
    return Problem(text, call, meaning, floats, depth * top_k, data, loose=2.0)


OPS = {"dispatch": dispatch, "route": route, "top_experts": top_experts}
