"""GPU time of part of a jitted function: CUDA events on the stream that XLA computes on.

The stream is held while the host catches up, so that what lies between the events is kernels and
the gaps between them, and never a wait for the host. Held by the driver itself: a host function of
the stream that sleeps, which needs no Python.
"""

import ctypes
from collections.abc import Sequence
from typing import Any

import jax
from jax.experimental.buffer_callback import ExecutionStage, buffer_callback

#: Microseconds for which a stream is held before the first event: longer than a chain takes to
#: enqueue.
HOLD_US = 400


class GpuClock:
    """Two events that are recorded anew by every run.

    `start` and `stop` are traced around the calls of one jitted function; `microseconds` says how
    long the last run took between them. One run at a time.

    Raises:
        OSError: where there is no CUDA driver.
        RuntimeError: when the driver refuses a call.
    """

    def __init__(self, hold_us: int = HOLD_US):
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._sleep = ctypes.cast(ctypes.CDLL(None).usleep, ctypes.c_void_p)
        self._hold_us = hold_us
        self._context = ctypes.c_void_p()
        self._call("cuInit", 0)
        device = ctypes.c_int()
        self._call("cuDeviceGet", ctypes.byref(device), 0)
        self._call("cuDevicePrimaryCtxRetain", ctypes.byref(self._context), device)
        self._call("cuCtxSetCurrent", self._context)
        self._events = [ctypes.c_void_p() for _ in range(2)]
        for event in self._events:
            self._call("cuEventCreate", ctypes.byref(event), 0)

    def start(self, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """The arrays, once the first event is recorded: what reads them is timed. Traced."""
        return self._mark(self.begin, arrays)

    def stop(self, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        """The arrays, after the second event: what made them is timed. Traced."""
        return self._mark(self.end, arrays)

    def begin(self, stream: int) -> None:
        """Hold a CUDA stream, then record the first event in it."""
        self._call("cuCtxSetCurrent", self._context)
        self._call("cuLaunchHostFunc", ctypes.c_void_p(stream), self._sleep, self._hold_us)
        self._call("cuEventRecord", self._events[0], ctypes.c_void_p(stream))

    def end(self, stream: int) -> None:
        """Record the second event in a CUDA stream."""
        self._call("cuCtxSetCurrent", self._context)
        self._call("cuEventRecord", self._events[1], ctypes.c_void_p(stream))

    def microseconds(self) -> float:
        """Between the events of the last run, once it is done; waits for it."""
        self._call("cuCtxSetCurrent", self._context)
        self._call("cuEventSynchronize", self._events[1])
        took = ctypes.c_float()
        self._call("cuEventElapsedTime", ctypes.byref(took), *self._events)
        return 1e3 * took.value

    def _mark(self, record: Any, arrays: Sequence[jax.Array]) -> list[jax.Array]:
        def callback(ctx: Any, out: Any, *buffers: Any) -> None:
            if ctx.stage == ExecutionStage.EXECUTE:
                record(int(ctx.stream))

        shapes = [jax.ShapeDtypeStruct(a.shape, a.dtype) for a in arrays]
        same = {i: i for i in range(len(shapes))}
        return list(buffer_callback(callback, shapes, input_output_aliases=same)(*arrays))

    def _call(self, name: str, *arguments: Any) -> None:
        arguments = tuple(
            ctypes.c_void_p(a) if isinstance(a, int) and name == "cuLaunchHostFunc" else a
            for a in arguments
        )
        status = getattr(self._driver, name)(*arguments)
        if status:
            raise RuntimeError(f"{name} failed with CUDA error {status}")
