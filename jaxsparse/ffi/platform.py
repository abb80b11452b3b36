"""`implementation=`: which of an op's implementations a platform runs, decided when it is traced,
checked by name.

An op offers up to three: "cuda", "cpu" and "reference". One trace serves every platform
(`lax.platform_dependent`), so a function can be exported for, or lowered to, another platform than
this machine's.
"""

import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import jax

from jaxsparse.ffi import register

Implementation = str | Sequence[str] | None
NAMES = ("cuda", "cpu", "reference")
_RUNS_ON = {"cuda": ("cuda", "reference"), "cpu": ("cpu", "reference")}


def reason_against(name: str, offered: Sequence[str], *, device: bool) -> str | None:
    """Why implementation `name` cannot run here, or None. `device`: one must be present, too."""
    if name not in offered:
        return f"this op has no {name!r} implementation"
    if name == "reference":
        return None
    built, why = register.module(name)
    if built is None:
        return why
    if device and name == "cuda" and not _has_cuda_device():
        return "JAX sees no CUDA device"
    return None


def _has_cuda_device() -> bool:
    try:
        return bool(jax.devices("cuda"))
    except RuntimeError:
        return False


def wishes(implementation: Implementation) -> tuple[str, ...]:
    """`implementation` as a tuple of names.

    Raises:
        TypeError: for no name and no sequence of names.
        ValueError: for a name that does not exist, or no name.
    """
    if implementation is None:
        return ()
    try:
        names = (implementation,) if isinstance(implementation, str) else tuple(implementation)
    except TypeError:
        raise TypeError(
            f"implementation={implementation!r}; it takes None, one of {', '.join(NAMES)}, "
            "or a sequence of them"
        ) from None
    if not names:
        raise ValueError(f"implementation={implementation!r} names none of {', '.join(NAMES)}")
    for name in names:
        if name not in NAMES:
            raise ValueError(
                f"implementation={implementation!r}: {name!r} is none of {', '.join(NAMES)}"
            )
    return names


def plan(op: str, implementation: Implementation, offered: Sequence[str]) -> dict[str, str]:
    """Platform -> implementation that runs there ("other" stands for every other platform).

    Raises:
        ValueError: when none of the named implementations can run, with every reason.
    """
    names = wishes(implementation)
    if names:
        against = {n: reason_against(n, offered, device=True) for n in names}
        usable = [n for n in names if against[n] is None]
        if not usable:
            reasons = "; ".join(f"{n}: {why}" for n, why in against.items())
            raise ValueError(f"{op}: implementation={implementation!r} cannot run ({reasons})")
    else:
        usable = [n for n in NAMES if reason_against(n, offered, device=False) is None]
    chosen = {
        platform: next((n for n in usable if n in runs), "") for platform, runs in _RUNS_ON.items()
    }
    chosen["other"] = "reference" if "reference" in usable else ""
    slower = chosen["cuda"] == "reference" and len(offered) > 1
    if slower and not names and _has_cuda_device():
        _warn_of_reference(op, reason_against("cuda", offered, device=True) or "")
    return {platform: name for platform, name in chosen.items() if name}


def is_hopper() -> bool:
    """Whether JAX's CUDA device is a Hopper; where there is none, the lowering is for one."""
    try:
        return jax.devices("cuda")[0].compute_capability == "9.0"
    except RuntimeError:
        return True


@functools.cache
def _warn_of_reference(op: str, why: str) -> None:
    """Once per op: a GPU is here and its kernels are not."""
    warnings.warn(
        f"{op} runs its reference on this GPU, without jaxsparse's kernels: {why}. "
        "`python -m jaxsparse.info` says more; implementation='reference' says it is meant.",
        RuntimeWarning,
        stacklevel=3,
    )


def dispatch(
    op: str, implementation: Implementation, **offered: Callable[..., Any]
) -> Callable[..., Any]:
    """A function of the op's arrays that runs the chosen implementation on whatever platform it is
    lowered for.

    Args:
        op: the op's name, for messages.
        implementation: None (the best available), a name, or a sequence of names in order of
            preference.
        **offered: cuda=, cpu=, reference=: functions of the same arrays with equal result types.

    Raises:
        ValueError: when a named implementation cannot run, listing every reason.
    """
    chosen = plan(op, implementation, tuple(offered))
    if len(set(chosen.values())) == 1 and "other" in chosen:
        return offered[chosen["other"]]
    branches = {p: offered[n] for p, n in chosen.items() if p != "other"}
    default = offered[chosen["other"]] if "other" in chosen else None

    def run(*arrays: Any) -> Any:
        return jax.lax.platform_dependent(*arrays, default=default, **branches)

    return run
