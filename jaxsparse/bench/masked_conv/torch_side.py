"""torch's dense convolution (oneDNN, cuDNN) beside ours: channels_last, the same inputs, the same
number of threads.
"""

import importlib
import importlib.util
from typing import Any

import jax
import jax.numpy as jnp

from jaxsparse.bench.measure.chain import Pool, worst_error
from jaxsparse.core.device import cores
from jaxsparse.testing import ConvCase


class TorchConv:
    """A `Side` for `interleave`: torch.nn.functional.conv2d on the inputs of a pool, compared at
    the active pixels.
    """

    @staticmethod
    def installed() -> bool:
        """Whether torch can be imported."""
        return importlib.util.find_spec("torch") is not None

    def __init__(self, name: str, pool: Pool, case: ConvCase, dtype: str):
        torch: Any = importlib.import_module("torch")

        self.torch = torch
        self.name, self.pool, self.sets = name, pool, pool.sets
        self.calls = pool.calls * pool.repeats
        self.case = case
        gpu = jax.default_backend() == "gpu"
        if gpu and not torch.cuda.is_available():
            raise RuntimeError("JAX runs on a GPU and this torch has no CUDA")
        self.device = torch.device("cuda" if gpu else "cpu")
        if not gpu:
            torch.set_num_threads(cores())
        torch.backends.cudnn.benchmark = True
        torch.backends.cudnn.allow_tf32 = dtype != "highest"
        self.dtype = torch.float32 if dtype == "highest" else getattr(torch, dtype)
        self.kernel = self._tensor(pool.operands["kernel"], (3, 2, 0, 1))
        self.xs = [[self._tensor(x, (0, 3, 1, 2)) for x in xs] for xs in pool.xs]
        self.outs: list[list[Any]] = [[] for _ in range(pool.sets)]

    def _tensor(self, array: jax.Array, axes: tuple[int, ...]) -> Any:
        """A channels_last copy of NHWC or HWIO data, on the same device, made before JAX may use
        the array's memory again.
        """
        shared = self.torch.from_dlpack(array).permute(axes).to(self.dtype)
        copy = shared.clone(memory_format=self.torch.channels_last)
        self.wait()
        return copy

    def enqueue(self, which: int) -> None:
        """Start the convolutions of set `which`; padding that is not symmetric costs torch a
        copy.
        """
        functional = self.torch.nn.functional
        (top, bottom), (left, right) = self.case.geometry.padding
        even = top == bottom >= 0 and left == right >= 0
        for _ in range(self.pool.repeats):
            with self.torch.inference_mode():
                outs = []
                for x in self.xs[which]:
                    padded = x if even else functional.pad(x, (left, right, top, bottom))
                    outs.append(
                        functional.conv2d(
                            padded,
                            self.kernel,
                            stride=self.case.strides,
                            padding=(top, left) if even else 0,
                            dilation=self.case.dilation,
                            groups=self.case.groups,
                        )
                    )
                self.outs[which] = outs

    def wait(self) -> None:
        """Wait for the device."""
        if self.device.type == "cuda":
            self.torch.cuda.synchronize()

    def error(self, which: int) -> float:
        """The worst error at the active pixels, over the largest value; inf for NaN. Drops the
        outputs.
        """
        outs, self.outs[which] = self.outs[which], []
        self.wait()
        dense = self.torch.contiguous_format
        nhwc = (out.permute(0, 2, 3, 1).clone(memory_format=dense) for out in outs)
        got = tuple(jnp.from_dlpack(out) for out in nhwc)
        return float(worst_error(got, self.pool.wants[which], self.pool.masks, everywhere=False))
