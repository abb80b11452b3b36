"""Other packages' products beside ours, on the inputs of a pool: torch's grouped and block-sparse
ones, cuSPARSE through cupy.
"""

import abc
import importlib
import importlib.util
import warnings
from collections.abc import Iterator, Sequence
from typing import Any

import jax
import jax.numpy as jnp
from jax.experimental import sparse as jax_sparse

from jaxsparse.bench.measure.chain import Pool, worst_error
from jaxsparse.core.device import cores


def installed(name: str) -> bool:
    """Whether that package can be imported."""
    return importlib.util.find_spec(name) is not None


def masked(xs: Sequence[jax.Array], pool: Pool, block: tuple[int, int]) -> Iterator[jax.Array]:
    """Each call's first operand with the blocks of its mask that are unset as zeros."""
    for x, mask in zip(xs, pool.masks, strict=True):
        keep = jnp.repeat(jnp.repeat(mask, block[0], 0), block[1], 1)[: x.shape[0], : x.shape[1]]
        yield jnp.where(keep, x, jnp.zeros_like(x))


class _Rival(abc.ABC):
    """A `Side` for `interleave`: the product of each call, which an heir gives."""

    def __init__(self, name: str, pool: Pool):
        self.name, self.pool, self.sets = name, pool, pool.sets
        self.calls = pool.calls * pool.repeats
        self.outs: list[list[Any]] = [[] for _ in range(pool.sets)]

    @abc.abstractmethod
    def product(self, which: int, i: int) -> Any:
        """The result of call `i` of set `which`, on the device."""

    @abc.abstractmethod
    def wait(self) -> None:
        """Wait for everything that was started."""

    def whole(self, out: Any) -> Any:
        """A result with its rows in order."""
        return out

    def enqueue(self, which: int) -> None:
        """Start the products of set `which`."""
        for _ in range(self.pool.repeats):
            self.outs[which] = [self.product(which, i) for i in range(self.pool.calls)]

    def error(self, which: int) -> float:
        """The worst error over the largest value; inf for NaN. Drops the outputs."""
        self.wait()
        outs, self.outs[which] = self.outs[which], []
        got = tuple(jnp.from_dlpack(self.whole(out)) for out in outs)
        return float(worst_error(got, self.pool.wants[which], self.pool.masks, everywhere=True))


class _Torch(_Rival):
    """What torch's products share.

    Raises:
        RuntimeError: when JAX runs on a GPU and torch does not.
    """

    def __init__(self, name: str, pool: Pool, dtype: str):
        super().__init__(name, pool)
        torch: Any = importlib.import_module("torch")

        self.torch = torch
        self.gpu = jax.default_backend() == "gpu"
        if self.gpu and not torch.cuda.is_available():
            raise RuntimeError("JAX runs on a GPU and this torch has no CUDA")
        if not self.gpu:
            torch.set_num_threads(cores())
        torch.backends.cuda.matmul.allow_tf32 = dtype != "highest"

    def tensor(self, array: jax.Array) -> Any:
        """A copy on the same device, made before JAX may use the array's memory again."""
        copy = self.torch.from_dlpack(array).clone()
        self.wait()
        return copy

    def wait(self) -> None:
        """Wait for everything that was started."""
        if self.gpu:
            self.torch.cuda.synchronize()


class TorchGrouped(_Torch):
    """`torch.nn.functional.grouped_mm` (an older torch's `_grouped_mm`): sorted rows, no gather."""

    def __init__(self, name: str, pool: Pool, *, dtype: str):
        super().__init__(name, pool, dtype)
        functional = self.torch.nn.functional
        self.run = getattr(functional, "grouped_mm", None) or self.torch._grouped_mm
        self.rhs = self.tensor(pool.operands["rhs"])
        self.xs = [[self.tensor(x) for x in xs] for xs in pool.xs]
        self.ends = [self.tensor(jnp.cumsum(r.group_sizes)) for r in pool.masks]

    def product(self, which: int, i: int) -> Any:
        """Of one call."""
        with self.torch.inference_mode():
            return self.run(self.xs[which][i], self.rhs, offs=self.ends[i])


class TorchBlocks(_Torch):
    """torch's Triton kernel for a block-sparse matrix (BSR) times a dense one, on a GPU; the
    conversion from the mask is not in the timing.
    """

    def __init__(self, name: str, pool: Pool, block: tuple[int, int], *, dtype: str):
        super().__init__(name, pool, dtype)
        self.run = importlib.import_module("torch.sparse._triton_ops").bsr_dense_mm
        self.b = self.tensor(pool.operands["b"])
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that BSR is in beta state
            self.a = [
                [self.tensor(a).to_sparse_bsr(block) for a in masked(xs, pool, block)]
                for xs in pool.xs
            ]

    def product(self, which: int, i: int) -> Any:
        """Of one call."""
        return self.run(self.a[which][i], self.b)


class CupySparse(_Rival):
    """cuSPARSE's CSR matrix times a dense one, through cupy, in float32; the conversion from the
    mask is not in the timing.
    """

    def __init__(self, name: str, pool: Pool, block: tuple[int, int]):
        super().__init__(name, pool)
        self.cupy: Any = importlib.import_module("cupy")
        sparse: Any = importlib.import_module("cupyx.scipy.sparse")
        self.b = self.cupy.asfortranarray(self.cupy.from_dlpack(pool.operands["b"]))
        self.a = [
            [sparse.csr_matrix(self.cupy.from_dlpack(a)) for a in masked(xs, pool, block)]
            for xs in pool.xs
        ]

    def product(self, which: int, i: int) -> Any:
        """Of one call."""
        return self.a[which][i] @ self.b

    def whole(self, out: Any) -> Any:
        """A result with its rows in order."""
        return self.cupy.ascontiguousarray(out)

    def wait(self) -> None:
        """Wait for everything that was started."""
        self.cupy.cuda.Device().synchronize()


class Bcoo(_Rival):
    """`jax.experimental.sparse`'s BCOO matrix times a dense one, a jitted call each; the conversion
    from the mask is not in the timing.
    """

    def __init__(self, name: str, pool: Pool, block: tuple[int, int], *, precision: Any):
        super().__init__(name, pool)
        self.b = pool.operands["b"]
        axes = (((1,), (0,)), ((), ()))
        self.run = jax.jit(
            lambda a, b: jax_sparse.bcoo_dot_general(
                a, b, dimension_numbers=axes, precision=precision
            )
        )
        self.a = [[jax_sparse.BCOO.fromdense(a) for a in masked(xs, pool, block)] for xs in pool.xs]

    def product(self, which: int, i: int) -> Any:
        """Of one call."""
        return self.run(self.a[which][i], self.b)

    def wait(self) -> None:
        """Wait for everything that was started."""
        jax.block_until_ready(self.outs)
