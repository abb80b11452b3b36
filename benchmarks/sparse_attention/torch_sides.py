"""The sides in torch: FlexAttention, compiled, and cuDNN attention, on the arrays of a problem."""

import contextlib
import functools
import os
import signal
from collections.abc import Callable, Iterator, Sequence
from typing import Any

os.environ.setdefault("TORCHINDUCTOR_COMPILE_THREADS", "1")  # an alarm interrupts this process

import jax
import jax.numpy as jnp
import torch
from problem import Problem
from torch.nn.attention import SDPBackend, flex_attention, sdpa_kernel

Attend = Callable[[Any, Any, Any], Any]
_flex = torch.compile(flex_attention.flex_attention, dynamic=False)
_create = torch.compile(flex_attention.create_block_mask, dynamic=False)


def prepare() -> None:
    """Set up torch: keep graphs for several gradients, and compile any number of shapes."""
    torch._functorch.config.donated_buffer = False
    for name in ("recompile_limit", "cache_size_limit"):
        if hasattr(torch._dynamo.config, name):
            setattr(torch._dynamo.config, name, 256)


@contextlib.contextmanager
def limit(seconds: float) -> Iterator[None]:
    """Raise TimeoutError in the body when it takes longer than `seconds`."""

    def stop(*_: Any) -> None:
        raise TimeoutError(f"stopped after {seconds:.0f} s")

    before = signal.signal(signal.SIGALRM, stop)
    signal.setitimer(signal.ITIMER_REAL, max(seconds, 0.01))
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def tensor(array: jax.Array) -> torch.Tensor:
    """[1, tokens, heads, depth] as a contiguous tensor [1, heads, tokens, depth]."""
    return torch.from_dlpack(array).transpose(1, 2).contiguous()


def as_jax(found: torch.Tensor) -> jax.Array:
    """A tensor [1, heads, tokens, depth] as an array [1, tokens, heads, depth]."""
    torch.cuda.synchronize()
    return jnp.from_dlpack(found.detach().transpose(1, 2).contiguous())


def flex(problem: Problem) -> Attend:
    """FlexAttention under the problem's mask, which is built here and not timed."""
    bits = torch.from_numpy(problem.bits)
    diagonal = torch.eye(problem.blocks, dtype=torch.bool)
    partial = bits & diagonal if problem.causal else torch.zeros_like(bits)
    lists = [x.cuda() for part in (partial, bits & ~partial) for x in _lists(part)]
    given = {"mask_mod": _causal} if problem.causal else {}
    mask = flex_attention.BlockMask.from_kv_blocks(
        *lists, BLOCK_SIZE=problem.block, seq_lengths=(problem.tokens, problem.tokens), **given
    )
    return lambda q, k, v: _flex(q, k, v, block_mask=mask)


def _causal(b: Any, h: Any, q: Any, kv: Any) -> Any:
    return q >= kv


def _lists(bits: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    order = torch.argsort(bits.to(torch.int8), dim=1, descending=True, stable=True)
    return bits.sum(1, dtype=torch.int32)[None, None], order.to(torch.int32)[None, None]


def cudnn(causal: bool = False, mask: torch.Tensor | None = None) -> Attend:
    """scaled_dot_product_attention on cuDNN."""

    def attend(q: Any, k: Any, v: Any) -> Any:
        with sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            return torch.nn.functional.scaled_dot_product_attention(
                q, k, v, attn_mask=mask, is_causal=causal
            )

    return attend


class Way:
    """The calls of one side: `enqueue(i)` starts call i, and `result` converts what it returned
    into JAX arrays.
    """

    calls = 0

    def enqueue(self, i: int) -> Any:
        """Start call `i` and return its result, or a tuple of results."""
        raise NotImplementedError

    def result(self, found: Any) -> tuple[jax.Array, ...]:
        """The results as JAX arrays, in the layout of the inputs."""
        return tuple(as_jax(x) for x in found)


class Torch(Way):
    """Attention of each of qs, or the gradients at each of gs."""

    def __init__(self, attend: Attend, qs: Sequence[Any], k: Any, v: Any, gs: Sequence[Any]):
        self._qs, self._gs = [tensor(q) for q in qs], [tensor(g) for g in gs]
        self._kv = tensor(k), tensor(v)
        self._attend = attend
        self.calls = len(gs or qs)
        if gs:
            self._leaves = tuple(x.requires_grad_() for x in (self._qs[0], *self._kv))
            self._out = attend(*self._leaves)

    def enqueue(self, i: int) -> Any:
        """Start call `i`: attention, or its gradients."""
        if not self._gs:
            with torch.no_grad():
                return (self._attend(self._qs[i], *self._kv),)
        return torch.autograd.grad(self._out, self._leaves, self._gs[i], retain_graph=True)


class Cached(Way):
    """Attention of q over the whole of each cache, on cuDNN."""

    def __init__(self, q: Any, caches: Sequence[Any]):
        self._q, self._caches = tensor(q), [tuple(map(tensor, pair)) for pair in caches]
        self.calls = len(caches)

    def enqueue(self, i: int) -> Any:
        """Start the attention over cache `i`."""
        with torch.no_grad(), sdpa_kernel(SDPBackend.CUDNN_ATTENTION):
            attend = torch.nn.functional.scaled_dot_product_attention
            return (attend(self._q, *self._caches[i], enable_gqa=True),)


class Masks(Way):
    """FlexAttention's compiled `create_block_mask`, from bool[blocks, blocks]."""

    def __init__(self, bits: jax.Array, block: int, calls: int):
        held, self._size, self._block = torch.from_dlpack(bits), block * len(bits), block
        self._holds = lambda b, h, q, kv: held[q // block, kv // block]
        self.calls = calls

    def enqueue(self, i: int) -> Any:
        """Start building a mask."""
        size = self._size
        return _create(self._holds, 1, 1, size, size, device="cuda", BLOCK_SIZE=self._block)

    def result(self, found: Any) -> tuple[jax.Array, ...]:
        """The blocks of the mask as an array."""
        return (jnp.from_dlpack(found.to_dense()[0, 0].to(torch.int32).contiguous()) != 0,)


def stream() -> int:
    """The CUDA stream that torch uses."""
    return torch.cuda.current_stream().cuda_stream


wait = functools.partial(torch.cuda.synchronize)


def dense(problem: Problem) -> torch.Tensor:
    """The dense mask of a problem, bool[1, 1, tokens, tokens]."""
    bits, size = torch.from_numpy(problem.bits).cuda(), problem.block
    keep = bits.repeat_interleave(size, 0).repeat_interleave(size, 1)
    return keep[None, None, : problem.tokens, : problem.tokens].contiguous()
