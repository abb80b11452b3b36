"""Plans on disk: a JSON header, then the arrays as bytes. No pickle; nothing in a file is executed.

`MAGIC`, the header's length (uint32, little-endian), the header, indptr (int32), indices (int32),
the values, and the SHA-256 of all that. Every fact is checked against every other when a file is
read: the pattern itself, the sizes, the values; and before it is written.
"""

import hashlib
import itertools
import secrets
from pathlib import Path
from typing import cast

import jax
import jax.numpy as jnp
import msgspec
import numpy as np

from jaxsparse.core.dtypes import DTYPES, FLOATS
from jaxsparse.core.geometry import Geometry
from jaxsparse.core.types import Kind
from jaxsparse.pruned.pattern import Pattern
from jaxsparse.pruned.plan import Plan, Tuned

MAGIC = b"jaxsparse plan 2\n"
_ANY = b"jaxsparse plan "
_MOST_HEADER = 1 << 24
_DIGEST_BYTES = 32


class Header(msgspec.Struct, forbid_unknown_fields=True):
    """Everything but the arrays."""

    kind: str
    n_in: int
    n_out: int
    entries: int
    window: tuple[int, int] | None
    groups: int
    dtype: str
    tuned: tuple[Tuned, ...] = ()


def save(path: str | Path, plan: Plan, values: jax.Array) -> None:
    """Write a plan and its values to `path`, whole or not at all.

    Raises:
        ValueError: for what `load` would refuse, naming the file.
    """
    try:
        data = encode(plan, values)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error
    write(path, data)


def encode(plan: Plan, values: jax.Array) -> bytes:
    """A plan and its values as the bytes of a file.

    Raises:
        ValueError: for what `decode` would refuse.
    """
    check(plan, values)
    pattern, host = plan.pattern, np.asarray(values)
    body = b"".join(np.ascontiguousarray(a).tobytes() for a in _arrays(pattern, host))
    header = Header(
        plan.kind,
        pattern.n_in,
        pattern.n_out,
        pattern.entries,
        pattern.window,
        pattern.groups,
        host.dtype.name,
        plan.tuned,
    )
    text = msgspec.json.encode(header)
    data = MAGIC + len(text).to_bytes(4, "little") + text + body
    return data + hashlib.sha256(data).digest()


def write(path: str | Path, data: bytes) -> None:
    """Write `data` to `path`, whole or not at all, with the permissions that the umask gives."""
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(f"path={str(path)!r}: there is no folder {str(path.parent)!r}")
    part = path.with_name(f"{path.name}.{secrets.token_hex(8)}.part")
    try:
        with part.open("xb") as file:
            file.write(data)
        part.replace(path)
    except BaseException:
        part.unlink(missing_ok=True)
        raise


def _arrays(pattern: Pattern, values: np.ndarray) -> tuple[np.ndarray, ...]:
    return pattern.indptr.astype("<i4"), pattern.indices.astype("<i4"), values


def load(path: str | Path) -> tuple[Plan, jax.Array]:
    """Read a plan and its values.

    Raises:
        OSError: when the file cannot be read.
        ValueError: when the file is truncated, altered, or not a plan, saying what is wrong.
    """
    data = Path(path).read_bytes()
    try:
        return decode(data)
    except ValueError as error:
        raise ValueError(f"{path}: {error}") from error


def decode(data: bytes) -> tuple[Plan, jax.Array]:
    """A plan and its values from the bytes of a file.

    Raises:
        ValueError: as `load`.
    """
    if not data.startswith(MAGIC):
        if data.startswith(_ANY):
            raise ValueError("a plan of another version of jaxsparse: inspect and save it again")
        raise ValueError("not a plan of jaxsparse: it does not begin as one")
    data, digest = data[:-_DIGEST_BYTES], data[-_DIGEST_BYTES:]
    if hashlib.sha256(data).digest() != digest:
        raise ValueError("truncated or altered: it does not have the digest at its end")
    at = len(MAGIC) + 4
    length = int.from_bytes(data[at - 4 : at], "little")
    if length > _MOST_HEADER or len(data) < at + length:
        raise ValueError("truncated in the header")
    try:
        header = msgspec.json.decode(data[at : at + length], type=Header)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise ValueError(f"the header is not a plan's: {error}") from error
    return _build(header, memoryview(data)[at + length :])


def _build(header: Header, body: memoryview) -> tuple[Plan, jax.Array]:
    if header.dtype not in DTYPES:
        raise ValueError(f"dtype {header.dtype!r} does not exist")
    dtype = np.dtype(getattr(jnp, header.dtype))
    if min(header.n_out, header.entries) < 0:
        raise ValueError("a size is negative")
    sizes = (4 * (header.n_out + 1), 4 * header.entries, dtype.itemsize * header.entries)
    if sum(sizes) != len(body):
        raise ValueError(
            f"truncated or altered: {len(body)} bytes of arrays, {sum(sizes)} expected"
        )
    edges = np.cumsum((0, *sizes))
    parts = [body[a:b] for a, b in itertools.pairwise(edges)]
    indptr, indices = (np.frombuffer(part, "<i4") for part in parts[:2])
    values = np.frombuffer(parts[2], dtype)
    pattern = Pattern(header.n_in, header.n_out, indptr, indices, header.window, header.groups)
    plan = Plan(pattern, cast(Kind, header.kind), header.tuned)
    check(plan, values)
    return plan, jax.device_put(values)


def check(plan: Plan, values: jax.Array | np.ndarray) -> None:
    """Whether a plan and its values are such that a file may hold.

    Raises:
        ValueError: saying what is wrong.
    """
    if values.dtype not in FLOATS:
        raise ValueError(f"the values are {values.dtype}; a file takes {', '.join(DTYPES)}")
    if tuple(values.shape) != (plan.pattern.entries,):
        raise ValueError(
            f"the values have shape {tuple(values.shape)}; "
            f"the pattern keeps {plan.pattern.entries} weights"
        )
    if not np.isfinite(np.asarray(values).astype(np.float32)).all():
        raise ValueError("the values hold NaN or Inf")
    check_plan(plan)


def check_plan(plan: Plan) -> None:
    """Whether the facts of a plan that was read fit each other; its pattern is one already.

    Raises:
        ValueError: saying what is wrong.
    """
    if plan.kind not in ("matmul", "conv"):
        raise ValueError(f"kind {plan.kind!r} does not exist")
    if plan.kind == "matmul" and plan.pattern.groups != 1:
        raise ValueError(f"a plan of kind 'matmul' with {plan.pattern.groups} groups")
    if (plan.pattern.window is None) != (plan.kind == "matmul"):
        raise ValueError(f"a plan of kind {plan.kind!r} with window {plan.pattern.window}")
    _check_groups(plan.pattern)
    for tuned in plan.tuned:
        _check_tuned(tuned)


def _check_groups(p: Pattern) -> None:
    """An output of a grouped convolution reads its own group's channels."""
    if p.n_out % p.groups or p.channels % p.groups:
        raise ValueError(f"{p.groups} groups do not divide {p.channels} -> {p.n_out} channels")
    own = p.rows // max(p.n_out // p.groups, 1)
    if (p.indices // max(p.n_in // p.groups, 1) != own).any():
        raise ValueError("a weight lies outside of its output's group")


def _check_tuned(tuned: Tuned) -> None:
    """Whether it fits is checked by the executor that it names, when it is used."""
    if tuned.platform not in ("cpu", "cuda") or not isinstance(tuned.geometry, Geometry | None):
        raise ValueError(f"a measured choice for platform {tuned.platform!r}")
