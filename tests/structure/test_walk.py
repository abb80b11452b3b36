"""A call of `masked_conv` walks one way to its handler: from the public function to the FFI call at
most eight files, each entered once.

Four are the op's own: api (checks), core (derivatives, batches), run (the platform), native (one
FFI call). Four are what every op goes through: derivatives, meshes, the choice, the FFI.
"""

import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

import jaxsparse as js
from jaxsparse.ffi.register import module

PACKAGE = str(Path(js.__file__).parent) + "/"
X, KERNEL = jnp.ones((1, 9, 41, 16)), jnp.ones((3, 3, 16, 16))
MASK = jnp.ones(X.shape[:3], bool)
OWN, MOST = "ops/masked_conv/", 8
#: What of the op's folder a plain call enters beside its way: its operands and the check of
#: `record`, and how a mesh would split it.
ASIDE = ("operands", "recorded", "shards")


def files(frame):
    """The package's files from the outermost frame to this one, each once in a row."""
    names = []
    while frame is not None:
        path = frame.f_code.co_filename
        if path.startswith(PACKAGE):
            name = path.removeprefix(PACKAGE)
            if not names or names[-1] != name:
                names.append(name)
        frame = frame.f_back
    return names[::-1]


def walked(call):
    """The ways to each function of the package that a trace of `call` enters, by its name."""
    ways = []

    def watch(frame, event, arg):
        if event == "call" and frame.f_code.co_filename.startswith(PACKAGE):
            ways.append((frame.f_code.co_name, files(frame)))

    jax.clear_caches()
    before = sys.getprofile()
    sys.setprofile(watch)
    try:
        jax.jit(call).trace(X)
    finally:
        sys.setprofile(before)
    assert ways
    # The branch for a platform that was not asked for is traced for its types alone.
    return [(name, way) for name, way in ways if "ffi/refusal.py" not in way]


def turns_back(way):
    """Whether a file of the op is entered again after it was left."""
    own = [name for name in way if name.startswith(OWN)]
    return len(own) != len(set(own))


GIVEN = {"index": js.tile_index(MASK, (1, 1)), "mask": MASK}
OPTIONS = [{}, {"implementation": ("cpu", "cuda")}, {"activation": "relu", "bias": KERNEL[0, 0, 0]}]


@pytest.mark.parametrize("options", OPTIONS, ids=["plain", "named", "fused"])
@pytest.mark.parametrize("given", GIVEN)
def test_a_call_walks_one_way_to_its_handler(given, options):
    ways = walked(lambda x: js.masked_conv(x, KERNEL, GIVEN[given], **options))
    ends = (["native.py"], ["device.py"]) if module("cuda")[0] is not None else (["native.py"],)
    calls = [way for name, way in ways if name == "ffi_call" and f"{OWN}core.py" in way]
    calls = [way for way in calls if [Path(way[-2]).name] in ends]
    assert calls
    for way in calls:
        assert len(way) == len(set(way)) <= MOST, way
        assert way[0] == f"{OWN}api.py"
        assert way[-1] == "ffi/call.py"
        assert "select/select.py" in way


@pytest.mark.parametrize("given", GIVEN)
def test_no_file_of_the_op_is_entered_again(given):
    """Nor any that is not on the way, but for `ASIDE`: what serves gradients, recorders and masks
    of channels is not entered by a call without them.
    """
    ways = [way for _, way in walked(lambda x: js.masked_conv(x, KERNEL, GIVEN[given]))]
    back = [way for way in ways if turns_back(way)]
    assert back == []
    on_the_way = ("api", "core", "run", "native", *ASIDE)
    if module("cuda")[0] is not None:
        on_the_way += ("device",)
    entered = {way[-1] for way in ways if way[-1].startswith(OWN)}
    assert entered <= {f"{OWN}{name}.py" for name in on_the_way}


def test_a_gradient_does_not_turn_back_either():
    """It is a convolution of its own: from the transpose in core on it is held to the same."""
    loss = lambda x: js.masked_conv(x, KERNEL, MASK, activation="gelu").sum()  # noqa: E731
    ways = [way for name, way in walked(jax.grad(loss)) if name == "ffi_call"]
    ways = [way for way in ways if f"{OWN}native.py" in way]
    assert ways
    for way in ways:
        assert way[-2:] == [f"{OWN}native.py", "ffi/call.py"]
        last = way[len(way) - way[::-1].index("core/differentiable.py") - 1 :]
        assert len(last) == len(set(last)) < MOST, way


def test_a_turn_back_is_found():
    assert turns_back([f"{OWN}core.py", f"{OWN}shards.py", f"{OWN}core.py", "ffi/call.py"])
    assert not turns_back(["ffi/call.py", f"{OWN}core.py", "select/select.py", "ffi/call.py"])
