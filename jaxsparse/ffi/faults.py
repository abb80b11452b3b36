"""Faults in the data that `js.checked()` turns into errors.

A callback that raises ends the program on its device. The other devices of that program then wait
for it in their next exchange, until XLA ends the process. So a program of several devices runs on,
and its faults are raised at the end of the `with` block.
"""

import functools
import threading
from collections.abc import Callable
from typing import Any

import jax
import numpy as np
from jax.core import ShapedArray
from jax.interpreters import mlir

_kept: list[ValueError] = []
_lock = threading.Lock()


def raise_on_host(check: Callable[..., None], *values: Any) -> None:
    """Call `check(*values)` on the host. Where it raises ValueError, so does the program, if it
    runs on one device; else `js.checked()` does, at its end.
    """
    jax.debug.callback(functools.partial(_run, check), _primitive().bind(), *values)


def take() -> list[ValueError]:
    """The faults that were kept since the last call."""
    with _lock:
        faults = list(_kept)
        _kept.clear()
    return faults


def _run(check: Callable[..., None], devices: np.ndarray, *values: Any) -> None:
    try:
        check(*values)
    except ValueError as fault:
        if devices == 1:
            raise
        with _lock:
            _kept.append(fault)


def _lower(ctx: mlir.LoweringRuleContext) -> Any:
    around: Any = ctx.module_context.axis_context
    devices = around.mesh.size if hasattr(around, "mesh") else getattr(around, "num_devices", 1)
    return [mlir.ir_constant(np.int32(devices))]


@functools.cache
def _primitive() -> Any:
    """int32[], the devices of the program; made on first use, for `jax.extend` loads Pallas."""
    from jax.extend.core import Primitive

    devices = Primitive("jaxsparse_devices_of_program")
    devices.def_abstract_eval(lambda: ShapedArray((), np.dtype(np.int32)))
    devices.def_impl(lambda: np.int32(1))
    mlir.register_lowering(devices, _lower)
    return devices
