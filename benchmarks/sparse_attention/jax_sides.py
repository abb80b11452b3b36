"""The sides in JAX: jaxsparse, and `jax.nn.dot_product_attention` with cuDNN, as jitted chains
between the clock's two events.
"""

from collections.abc import Callable, Sequence
from typing import Any

import jax

import jaxsparse as js
from jaxsparse.bench.measure.gpu_clock import GpuClock

Attend = Callable[[Any, Any, Any, Any], Any]


def ours(q: jax.Array, k: jax.Array, v: jax.Array, mask: js.BlockMask) -> jax.Array:
    """`js.sparse_attention` under a mask of blocks."""
    return js.sparse_attention(q, k, v, mask, implementation="cuda")


def cudnn(causal: bool) -> Attend:
    """cuDNN over all keys, or with `causal` those up to the query; `mask` is None or dense."""

    def attend(q: jax.Array, k: jax.Array, v: jax.Array, mask: jax.Array | None) -> jax.Array:
        return jax.nn.dot_product_attention(
            q, k, v, mask=mask, is_causal=causal, implementation="cudnn"
        )

    return attend


#: Name -> function. They are made once, so that a chain is compiled once for each shape.
ATTEND: dict[str, Attend] = {"ours": ours, "full": cudnn(False), "causal": cudnn(True)}


class Chains:
    """Chains of calls that a clock times; the clock holds the time of the last one.

    `forward(how, qs, k, v, mask)` computes a result for each of qs, `backward(how, q, k, v, mask,
    gs)` the gradients for each of gs, `decode(q, caches, mask)` a result for each pair of k and v,
    and `made(maker, inputs)` a mask from each input. `how` is a name in `ATTEND`.
    """

    def __init__(self, clock: GpuClock):
        self._clock = clock
        self.forward = jax.jit(self._forward, static_argnums=0)
        self.made = jax.jit(self._made, static_argnums=0)
        self.decode = jax.jit(self._decode)
        self._pulled = jax.jit(self._pull)
        self._prepared = jax.jit(self._prepare, static_argnums=0)

    def _started(self, tree: Any) -> Any:
        leaves, form = jax.tree.flatten(tree)
        return jax.tree.unflatten(form, self._clock.start(leaves))

    def _stopped(self, tree: Any) -> Any:
        leaves, form = jax.tree.flatten(tree)
        return jax.tree.unflatten(form, self._clock.stop(leaves))

    def _forward(self, how: str, qs: Sequence[Any], k: Any, v: Any, mask: Any) -> Any:
        qs, k, v, mask = self._started((qs, k, v, mask))
        return self._stopped([ATTEND[how](q, k, v, mask) for q in qs])

    def _made(self, maker: Callable[[Any], Any], inputs: Sequence[Any]) -> Any:
        return self._stopped([maker(x) for x in self._started(inputs)])

    def _decode(self, q: Any, caches: Sequence[Any], mask: Any) -> Any:
        q, caches, mask = self._started((q, caches, mask))
        return self._stopped([ours(q, k, v, mask) for k, v in caches])

    def _prepare(self, how: str, q: Any, k: Any, v: Any, mask: Any) -> Any:
        return jax.vjp(lambda *qkv: ATTEND[how](*qkv, mask), q, k, v)[1]

    def _pull(self, pull: Any, gs: Sequence[Any]) -> Any:
        pull, gs = self._started((pull, gs))
        return self._stopped([pull(g) for g in gs])

    def backward(
        self, how: str, q: Any, k: Any, v: Any, mask: Any, gs: Sequence[Any]
    ) -> Callable[[], Any]:
        """A chain of gradients without the forward call, which runs here, once."""
        pull = jax.block_until_ready(self._prepared(how, q, k, v, mask))
        return lambda: self._pulled(pull, gs)
