"""`js.config`: trace-time settings. They are part of the jit key, so a change retraces and nothing
is stale.
"""

import contextlib
import dataclasses
import functools
from collections.abc import Iterator

import jax
import numpy as np

from jaxsparse.core.differentiable import keep_context
from jaxsparse.core.types import Selection
from jaxsparse.ffi import Implementation
from jaxsparse.ffi.faults import take
from jaxsparse.ffi.partition import keep
from jaxsparse.ffi.platform import Name, default_implementation, implementation_key, wishes
from jaxsparse.select.policy import Policy, check_policy
from jaxsparse.select.table import TuningTable
from jaxsparse.select.variants import Variant, is_known

SELECTIONS = ("static", "device", "switch")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What `js.config` sets: None is the default of the platform or of the tuning table."""

    selection: str | None = None
    variant: str | None = None
    variant_of: str | None = None
    deterministic: bool = False
    tuning: TuningTable | None = None
    checked: bool = False
    explain: int | None = None
    policy: Policy | None = None

    def demanded(self, *ops: str, by_name: bool = True) -> str | None:
        """The variant that a call must take which goes by the names `ops`, if any. `by_name`: also
        where a name was given without its op.
        """
        speaks = by_name if self.variant_of is None else self.variant_of in ops
        return self.variant if speaks else None


_context = jax.make_user_context(Settings())
keep_context(_context)


def settings() -> Settings:
    """The settings in force where this is traced."""
    return _context.value


keep(lambda: functools.partial(_context, settings()))
keep(lambda: functools.partial(default_implementation, implementation_key(None)))


@contextlib.contextmanager
def override(**changes: object) -> Iterator[Settings]:
    """The settings with `changes`, inside the `with` block."""
    with _context(dataclasses.replace(settings(), **changes)):
        yield settings()


def config(
    *,
    selection: Selection | None = None,
    implementation: Implementation = None,
    variant: str | Variant | None = None,
    policy: Policy | None = None,
    deterministic: bool | None = None,
    tuning: TuningTable | None = None,
) -> contextlib.AbstractContextManager[Settings]:
    """Settings for every op traced inside the `with` block. They are checked by this call.

    Args:
        selection: how a variant is chosen: "static" at trace time from shape, dtype, device and the
            tuning table; "device" by the kernel itself, from the index's count; "switch" by
            `lax.switch` on the index's count, the dense operation among the branches. None, the
            default, is "device" on a GPU where an op offers it and the table's rates say that it
            pays, else "static".
        implementation: what every op runs that is not given an `implementation=` of its own:
            "cuda", "cpu", "reference", or a sequence of them; an op that has none of them raises.
        variant: a name (`js.variants(op)`), which every op inside must be able to run; or a
            Variant, which concerns the calls of its own op only.
        policy: your own function `policy(problem, options)` that chooses the variant. It is called
            while an op is traced, once for each problem and for each platform that the call may be
            lowered for; its answer is kept. `problem` is a `js.select.Problem`: `op`, `platform`
            ("cpu" or "cuda"), `dtype`, `features` (the shape in numbers), `n_tiles`. `options` is a
            tuple of `js.select.Option`, one for each variant that can run the problem. The policy
            returns an option or its name; or None for the default; or a pair (up to 8 options,
            function), for masked_conv, masked_dense, masked_matmul and grouped_matmul. The function
            runs on the device: it takes the density, float32[] (the share of active tiles, blocks
            or rows), and returns the position of an option in the pair, int32[], clipped to the
            range. The function object is part of the jit key: define it once. `variant=` takes
            precedence over it.
        deterministic: bitwise equal results from run to run (ordered indices, ordered sums). An
            index that was built outside of the block keeps its order.
        tuning: a table to choose from instead of the shipped one.

    Settings that are not given keep their value from outside the block. They are part of the jit
    key.

    Returns:
        A context manager; `with js.config(...) as settings`.

    Raises:
        ValueError: for a selection, an implementation or a variant that does not exist.
        TypeError: when `tuning` is not a TuningTable, `variant` not a Variant or a name, `policy`
            not a hashable function, or `deterministic` not a bool. The answer of a policy is
            checked when it is called.
    """
    if selection is not None and (not isinstance(selection, str) or selection not in SELECTIONS):
        raise ValueError(f"selection={selection!r} is not one of {', '.join(SELECTIONS)}")
    if tuning is not None and not isinstance(tuning, TuningTable):
        raise TypeError(f"tuning must be a TuningTable, not {type(tuning).__name__}")
    variant_of = variant.op if isinstance(variant, Variant) else None
    variant = variant.name if isinstance(variant, Variant) else variant
    if variant is not None and not isinstance(variant, str):
        raise TypeError(f"variant must be a name or a Variant, not {type(variant).__name__}")
    if variant is not None and variant_of is None and not is_known(variant):
        raise ValueError(
            f"variant={variant!r} is not a variant in this build: js.variants(op) lists those of op"
        )
    if deterministic is not None and not isinstance(deterministic, (bool, np.bool_)):
        raise TypeError(f"deterministic must be a bool, not {type(deterministic).__name__}")
    if policy is not None:
        check_policy(policy)
    deterministic = None if deterministic is None else bool(deterministic)
    given = {
        "selection": selection,
        "variant": variant,
        "deterministic": deterministic,
        "tuning": tuning,
        "policy": policy,
    }
    changes = {k: v for k, v in given.items() if v is not None}
    if variant is not None:
        changes["variant_of"] = variant_of
    return _within(changes, wishes(implementation) or None)


@contextlib.contextmanager
def _within(
    changes: dict[str, object], implementation: tuple[Name, ...] | None
) -> Iterator[Settings]:
    with contextlib.ExitStack() as stack:
        if implementation is not None:
            stack.enter_context(default_implementation(implementation))
        yield stack.enter_context(override(**changes))


@contextlib.contextmanager
def checked() -> Iterator[None]:
    """Turn flags for faults in the data into errors: an index that overflows raises when an op uses
    it; group sizes, row indices and experts out of range raise in the op that they are given to. (A
    negative expert stands for no expert and does not raise.)

    Each check costs a call back to the host: use it to find a fault, not in production.

    Raises:
        ValueError: from an op that is called eagerly, outside of jit.
        jax.errors.JaxRuntimeError: from a jitted function, inside the `with` block, as soon as a
            flagged result is waited for; its message holds that of the ValueError.
        ValueError: at the end of the `with` block, from a function that runs on several devices: a
            device that stopped earlier would leave the others waiting for it.
    """
    if not settings().checked:
        take()  # of a program that was called outside of any block
    try:
        with override(checked=True):
            yield
            jax.effects_barrier()
    finally:
        faults = take()
    if faults:
        raise faults[0]
