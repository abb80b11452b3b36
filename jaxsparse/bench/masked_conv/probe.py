"""GPU time of convolutions on one problem: chains of calls on distinct inputs between two CUDA
events, each output compared with torch's convolution in full float32.

Inputs and outputs are donated and come back, so no call allocates; outputs hold NaN before each
run. The comparison runs in torch on the same buffers, so that it compiles nothing.
"""

import importlib
import math
from collections.abc import Callable, Sequence
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxsparse.bench.measure.gpu_clock import GpuClock
from jaxsparse.testing import ConvCase

#: (call number, x, kernel, extra) -> out.
ProbeCall = Callable[[int, jax.Array, jax.Array, Any], jax.Array]
ROTATE_BYTES = 64e6
MAX_SETS = 8


class ConvProbe:
    """The inputs of one problem, what their convolutions are, and the time of ways to do them.

    Args:
        case: the convolution.
        dtype: "bfloat16", "float16" or "float32" (TF32).
        calls: in a chain, each on an input of its own. Several chains' worth of inputs and outputs
            are rotated until 64 MB have passed.

    Raises:
        ModuleNotFoundError: without torch.
        OSError: without a CUDA driver.
    """

    def __init__(self, case: ConvCase, dtype: str, *, calls: int = 8):
        self.torch: Any = importlib.import_module("torch")
        self.case, self.dtype, self.calls = case, dtype, calls
        self.clock = GpuClock()
        torch = self.torch
        kind = getattr(torch, dtype)
        size = (math.prod(case.x_shape) + math.prod(case.mask_shape) * case.outputs) * kind.itemsize
        self.sets = min(max(math.ceil(ROTATE_BYTES / (size * calls)), 1), MAX_SETS)
        torch.manual_seed(0)
        fan_in = math.prod(case.kernel_shape[:3])
        weights = (torch.randn(case.kernel_shape, device="cuda") / fan_in**0.5).to(kind)
        self._oihw = weights.permute(3, 2, 0, 1)
        self.kernel = _owned(weights)
        drawn = [
            [torch.randn(case.x_shape, device="cuda").to(kind) for _ in range(calls)]
            for _ in range(self.sets)
        ]
        torch.backends.cudnn.allow_tf32 = False
        torch.backends.cudnn.benchmark = False
        self._wants = [[self._conv(x.float(), self._oihw.float()) for x in xs] for xs in drawn]
        self.xs = [tuple(_owned(x) for x in xs) for xs in drawn]
        self.outs = [tuple(_owned(want.to(kind)) for want in wants) for wants in self._wants]
        torch.cuda.synchronize()

    def _conv(self, x: Any, oihw: Any, *, padded: bool = False) -> Any:
        """NHWC in, NHWC out; the storage of both is channels_last."""
        (top, bottom), (left, right) = self.case.geometry.padding
        functional, even = self.torch.nn.functional, top == bottom and left == right
        x = x.permute(0, 3, 1, 2)
        if not even and not padded:
            x = functional.pad(x, (left, right, top, bottom))
        out = functional.conv2d(
            x,
            oihw.contiguous(memory_format=self.torch.channels_last),
            stride=self.case.strides,
            padding=(top, left) if even else 0,
            dilation=self.case.dilation,
            groups=self.case.groups,
        )
        return out.permute(0, 2, 3, 1).contiguous()

    def compile(
        self, call: Callable[..., jax.Array], extra: Any = (), *, base: bool = False
    ) -> Any:
        """The chain of `call` (a `ProbeCall`), whose `extra` (a pytree of arrays) may differ from
        run to run. With `base` each call gets the buffer of its result, too, as what it starts as.
        """
        clock = self.clock

        def chain(xs: Any, outs: Any, kernel: jax.Array, extra: Any) -> Any:
            leaves, tree = jax.tree.flatten(extra)
            marked = clock.start([*xs, kernel, *leaves])
            xs, kernel = tuple(marked[: len(xs)]), marked[len(xs)]
            extra = jax.tree.unflatten(tree, marked[len(xs) + 1 :])
            starts = [(out,) for out in outs] if base else [()] * len(xs)
            made = [call(i, x, kernel, extra, *starts[i]) for i, x in enumerate(xs)]
            return xs, tuple(clock.stop(made))

        lowered = jax.jit(chain, donate_argnums=(0, 1), keep_unused=True).lower(
            self.xs[0], self.outs[0], self.kernel, extra
        )
        return lowered.compile()

    def time(
        self,
        chain: Any,
        extra: Any,
        masks: Sequence[np.ndarray] | None,
        *,
        samples: int,
        everywhere: bool = True,
    ) -> tuple[list[float], float]:
        """Microseconds a call of each run, and the worst error of all runs.

        Args:
            chain: from `compile`.
            extra: its data.
            masks: bool[B, Ho, Wo] of each call, outside of which results are zero; None: dense.
            samples: timed runs; one more comes first.
            everywhere: compare all pixels; otherwise the active ones only.
        """
        on_device = None
        if masks is not None:
            on_device = [self.torch.as_tensor(m, device="cuda")[..., None] for m in masks]
        took, worst = [], 0.0
        for turn in range(samples + 1):
            which = turn % self.sets
            xs, outs = chain(self.xs[which], self.outs[which], self.kernel, extra)
            jax.block_until_ready(outs)
            self.xs[which], self.outs[which] = xs, outs
            took.append(self.clock.microseconds() / self.calls)
            wants = self._wants[which]
            worst = max(worst, self._error(outs, wants, on_device, everywhere=everywhere))
        return took[1:], worst

    def time_torch(self, *, samples: int) -> tuple[list[float], float]:
        """As `time`, of torch's dense convolution, channels_last, the best that cuDNN finds; what
        padding is not symmetric is added before.
        """
        torch = self.torch
        torch.backends.cudnn.allow_tf32 = True
        torch.backends.cudnn.benchmark = True
        (top, bottom), (left, right) = self.case.geometry.padding
        pads = (0, 0) if top == bottom and left == right else (left, right, top, bottom)
        oihw = self._oihw.contiguous(memory_format=torch.channels_last)
        took, worst = [], 0.0
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), torch.inference_mode():
            for turn in range(samples + 2):
                which = turn % self.sets
                xs = [torch.from_dlpack(x) for x in self.xs[which]]
                if len(pads) == 4:
                    xs = [torch.nn.functional.pad(x, (0, 0, *pads)) for x in xs]
                self.clock.begin(stream.cuda_stream)
                outs = [self._conv(x, oihw, padded=True) for x in xs]
                self.clock.end(stream.cuda_stream)
                took.append(self.clock.microseconds() / self.calls)
                worst = max(worst, self._error(outs, self._wants[which], None, fill=False))
        return took[2:], worst

    def _error(
        self, outs: Any, wants: Any, masks: Any, *, fill: bool = True, everywhere: bool = True
    ) -> float:
        """The worst error over the largest value (at least 1), inf for NaN; then NaN in `outs`."""
        torch = self.torch
        errors = []
        for i, (out, want) in enumerate(zip(outs, wants, strict=True)):
            got = torch.from_dlpack(out) if isinstance(out, jax.Array) else out
            exact = want if masks is None else want * masks[i]
            scale = exact.abs().amax().clamp(min=1.0)
            seen = got
            if masks is not None and not everywhere:
                seen = torch.where(masks[i], got, torch.zeros_like(got))
            errors.append(torch.nan_to_num((seen.float() - exact).abs().amax() / scale, nan=1e9))
            if fill:
                got.fill_(float("nan"))
        worst = float(torch.stack(errors).amax())
        torch.cuda.synchronize()
        return worst


def _owned(tensor: Any) -> jax.Array:
    """A JAX array of its own, so that it can be donated."""
    return jnp.array(jnp.from_dlpack(tensor.contiguous()), copy=True)
