"""`implementation=`: which of an op's implementations a platform runs, decided when it is traced,
checked by name.

An op offers up to three: "cuda", "cpu" and "reference". One trace serves every platform
(`lax.platform_dependent`), so a function can be exported for, or lowered to, another platform than
this machine's.
"""

import contextlib
import functools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, Literal

import jax

from jaxsparse.ffi import architectures, register
from jaxsparse.ffi.refusal import refusing

Name = Literal["cuda", "cpu", "reference"]
Implementation = Name | Sequence[Name] | None
NAMES: tuple[Name, ...] = ("cuda", "cpu", "reference")
_RUNS_ON = {"cuda": ("cuda", "reference"), "cpu": ("cpu", "reference")}
#: op -> the op that it runs as.
_RUNS_AS: dict[str, str] = {}
#: op -> the implementations that it offers, where they are not all of NAMES.
_OFFERED: dict[str, tuple[str, ...]] = {}


#: What `js.config(implementation=)` asks for; part of the jit key.
_default = jax.make_user_context(None)


def default_implementation(
    names: tuple[Name, ...] | None,
) -> contextlib.AbstractContextManager[None]:
    """Inside the `with` block a call without `implementation=` runs one of `names`."""
    return _default(names)


def offers(op: str, *names: str) -> tuple[str, ...]:
    """Say that `op` offers only these implementations; returns them. `dispatch` holds it to that.

    Raises:
        ValueError: for a name that is not one of NAMES.
    """
    if not names or not set(names) <= set(NAMES):
        raise ValueError(f"{op} offers {names}: it takes some of {', '.join(NAMES)}")
    _OFFERED[op] = names
    return names


def runs_as(op: str, other: str) -> None:
    """Say that `op` has no kernels of its own: it calls `other`, which reports what runs."""
    _RUNS_AS[op] = other


def has_kernels(op: str) -> bool:
    """Whether `op` offers kernels of its own beside the reference."""
    return op not in _RUNS_AS and len(offered_by(op)) > 1


def offered_by(op: str) -> tuple[str, ...]:
    """The implementations that `op` offers: all, where it does not say."""
    return _OFFERED.get(op, NAMES)


def reason_against(name: str, offered: Sequence[str], *, device: bool) -> str | None:
    """Why implementation `name` cannot run here, or None. `device`: one must be present, too."""
    if name not in offered:
        return f"this op has no {name!r} implementation"
    if name == "reference":
        return None
    built, why = register.module(name)
    if built is None:
        return why
    if name != "cuda":
        return None
    capabilities = _cuda_capabilities()
    if device and not capabilities:
        return "JAX sees no CUDA device"
    against = (architectures.reason_against(built.architectures, c) for c in capabilities)
    return next((why for why in against if why), None)


def _home() -> str:
    return "cuda" if _cuda_capabilities() else "cpu"


def _that_run(offered: Sequence[str], platform: str) -> str:
    """Which implementations run on `platform`, as a sentence."""
    known = (n for n in _RUNS_ON.get(platform, ("reference",)) if n in offered)
    names = [n for n in known if reason_against(n, offered, device=False) is None]
    return f"on {platform} it takes implementation={' or '.join(map(repr, names)) or None}"


def _sentence(op: str, asked: Implementation, offered: tuple[str, ...], platform: str) -> str:
    """What is said of a call that is lowered for a platform that what was asked for does not run
    on."""
    platform = {"gpu": "cuda"}.get(platform, platform)
    return (
        f"{op}: implementation={asked!r} cannot run on {platform}, which this is lowered for; "
        f"{_that_run(offered, platform)}"
    )


@functools.cache
def _cuda_capabilities() -> list[str]:
    """The compute capability of each CUDA device that JAX sees."""
    try:
        return [device.compute_capability for device in jax.devices("cuda")]
    except RuntimeError:
        return []


def wishes(implementation: Implementation) -> tuple[Name, ...]:
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
                f"implementation={implementation!r}: {name!r} is not one of {', '.join(NAMES)} "
                "(variants of one are named by variant=)"
            )
    return names


def named(implementation: Implementation) -> Any:
    """`implementation` as a static argument; None stays, for the calls to come.

    Raises:
        TypeError, ValueError: as `wishes`.
    """
    names = wishes(implementation)
    return implementation if implementation is None or isinstance(implementation, str) else names


def implementation_key(implementation: Implementation) -> Any:
    """`implementation` as a static argument of the call that is traced; for None that of
    `js.config`.

    Raises:
        TypeError, ValueError: as `wishes`.
    """
    return _default.value if implementation is None else named(implementation)


def plan(op: str, implementation: Implementation, offered: Sequence[str]) -> dict[str, str]:
    """Platform -> implementation that runs there ("other" stands for every other platform).

    Raises:
        ValueError: when none of the named implementations can run, with every reason.
    """
    implementation = implementation_key(implementation)
    names = wishes(implementation)
    if names:
        against = {n: reason_against(n, offered, device=True) for n in names}
        usable = [n for n in names if against[n] is None]
        if not usable:
            reasons = "; ".join(f"{n}: {why}" for n, why in against.items())
            raise ValueError(
                f"{op}: implementation={implementation!r} cannot run ({reasons}); "
                f"{_that_run(offered, _home())}"
            )
    else:
        usable = [n for n in NAMES if reason_against(n, offered, device=False) is None]
    chosen = {
        platform: next((n for n in usable if n in runs), "") for platform, runs in _RUNS_ON.items()
    }
    chosen["other"] = "reference" if "reference" in usable else ""
    if not names and len(offered) > 1:
        here = _home()
        if chosen[here] == "reference" and (here == "cuda" or "cpu" in offered):
            _warn_of_reference(op, here, reason_against(here, offered, device=True) or "")
    return {platform: name for platform, name in chosen.items() if name}


@functools.cache
def _warn_of_reference(op: str, platform: str, why: str) -> None:
    """Once per op: the kernels for this platform are not here."""
    place = {"cuda": "GPU", "cpu": "CPU"}[platform]
    warnings.warn(
        f"{op} runs its reference on this {place}, without jaxsparse's kernels: {why}. "
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
        ValueError: when a named implementation cannot run, listing every reason; when `offered` is
            not what the op `offers`.
    """
    if op in _OFFERED and set(_OFFERED[op]) != set(offered):
        raise ValueError(f"{op} offers {_OFFERED[op]}, and dispatch was given {tuple(offered)}")
    chosen = plan(op, implementation, tuple(offered))
    if len(set(chosen.values())) == 1 and "other" in chosen:
        return offered[chosen["other"]]
    branches: dict[str, Any] = {p: offered[n] for p, n in chosen.items() if p != "other"}
    default = offered.get(chosen.get("other", ""))
    if default is None:
        asked = implementation_key(implementation)
        sentence = functools.partial(_sentence, op, asked, tuple(offered))
        default = refusing(next(iter(branches.values())), sentence)
    return functools.partial(jax.lax.platform_dependent, default=default, **branches)
