"""A call that somebody edited: one thing about it is changed."""

import copy
from typing import Any

import numpy as np
from ffi.hostile.draw import DTYPES, Call

INTEGERS = [-(2**63), -(2**62), -(2**31), -1, 0, 1, 2, 3, 7, 33, 2**16, 2**31 - 1, 2**31, 2**32]
INTEGERS += [2**40, 2**61, 2**62, 2**63 - 1]
FLOATS = [0.0, -1.0, float("inf"), float("nan")]
SIZES = [0, 1, 2, 5, 31, 64, 1000]
HUGE = [2**20, 2**31 - 1, 2**31, 2**40]


def spoil(call: Call, rng: np.random.Generator) -> tuple[Call, str]:
    """The call with one thing changed, and what that is."""
    call = copy.deepcopy(call)
    ways = [_shape, _shape, _dtype, _empty, _count]
    if call.attributes:
        ways += [_attribute] * 5 + [_two_attributes, _kind]
    return call, ways[int(rng.integers(len(ways)))](call, rng)


def _pick(rng: np.random.Generator, values: Any) -> Any:
    return values[int(rng.integers(len(values)))]


def _array(call: Call, rng: np.random.Generator) -> tuple[list[Any], int]:
    arrays = call.operands if rng.random() < 0.5 else call.results
    return arrays, int(rng.integers(len(arrays)))


def _attribute(call: Call, rng: np.random.Generator) -> str:
    name = _pick(rng, sorted(call.attributes))
    before = call.attributes[name]
    if isinstance(before, np.bool_):
        call.attributes[name] = np.bool_(not before)
    elif isinstance(before, np.floating):
        call.attributes[name] = np.float32(_pick(rng, FLOATS))
    else:
        call.attributes[name] = np.int64(_pick(rng, INTEGERS))
    return f"{name}={call.attributes[name]!r}"


def _two_attributes(call: Call, rng: np.random.Generator) -> str:
    return f"{_attribute(call, rng)}, {_attribute(call, rng)}"


def _kind(call: Call, rng: np.random.Generator) -> str:
    """Another type, one too few, one too many."""
    name, way = _pick(rng, sorted(call.attributes)), int(rng.integers(3))
    if way == 0:
        call.attributes[name] = np.float64(1.0)
    elif way == 1:
        del call.attributes[name]
    else:
        call.attributes["another"] = np.int64(1)
    return f"attribute {name}: way {way}"


def _shape(call: Call, rng: np.random.Generator) -> str:
    arrays, i = _array(call, rng)
    name, shape, dtype = arrays[i]
    sizes = list(shape)
    way = rng.random()
    if sizes and way < 0.7:
        axis = int(rng.integers(len(sizes)))
        sizes[axis] = _pick(rng, [*SIZES, max(sizes[axis] - 1, 0), sizes[axis] + 1])
    elif way < 0.85 or not sizes:
        sizes.append(1)
    else:
        sizes.pop()
    arrays[i] = (name, tuple(sizes), dtype)
    return f"{name}: {list(shape)} -> {sizes}"


def _empty(call: Call, rng: np.random.Generator) -> str:
    """Nothing in it, and huge besides; sometimes in all arrays that have this size."""
    arrays, i = _array(call, rng)
    name, shape, _ = arrays[i]
    if len(shape) < 2:
        return _shape(call, rng)
    # The empty axis comes first: XLA itself walks over 2^31 rows of nothing.
    zero, huge = sorted(rng.choice(len(shape), 2, replace=False))
    change = {shape[zero]: 0, shape[huge]: _pick(rng, HUGE)}
    alone = rng.random() < 0.5
    for group in (call.operands, call.results):
        for j, (other, sizes, dtype) in enumerate(group):
            mine = group is arrays and j == i
            if mine or not alone:
                changed = tuple(change.get(s, s) for s in sizes)
                whole = np.prod([s or 1 for s in changed], dtype=float)
                slow = 0 in changed and max(changed[: changed.index(0)], default=0) > 1000
                if not slow and whole < (2**56 if 0 in changed else 2**20):
                    group[j] = (other, changed, dtype)
    return f"{name}: {list(shape)} by {change}, {'alone' if alone else 'everywhere'}"


def _dtype(call: Call, rng: np.random.Generator) -> str:
    arrays, i = _array(call, rng)
    name, shape, dtype = arrays[i]
    arrays[i] = (name, shape, _pick(rng, list(DTYPES.values())))
    return f"{name}: {np.dtype(dtype)} -> {np.dtype(arrays[i][2])}"


def _count(call: Call, rng: np.random.Generator) -> str:
    """One array too few or too many."""
    arrays, i = _array(call, rng)
    if rng.random() < 0.5 and len(arrays) > 1:
        gone = arrays.pop(i)
        call.aliases.clear()
        return f"without {gone[0]}"
    arrays.append(arrays[i])
    return f"{arrays[i][0]} twice"
