"""`js.variants` lists what `js.config(variant=)` takes, the dense operation and executors too."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.select.variants import OPS

PLATFORM = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())


def names(op):
    return [v.name for v in js.variants(op) if v.platform == PLATFORM]


@pytest.mark.parametrize("op", ["masked_conv", "masked_matmul", "pruned_matmul", "pruned_conv"])
def test_dense_is_listed_once_and_has_no_number(op):
    found = [v for v in js.variants(op) if v.platform == PLATFORM and v.name == "dense"]
    assert [v.number for v in found] == [-1]
    assert len(set(names(op))) == len(names(op))


def test_listed_executors_can_be_asked_for(rng):
    w = rng.standard_normal((64, 64)).astype(np.float32)
    w[rng.random((64, 64)) < 0.9] = 0
    weight = js.inspect(w)
    x = jnp.asarray(rng.standard_normal((256, 64)), jnp.float32)
    against = js.explain(lambda a: js.pruned_matmul(a, weight), x).calls[0].against
    ran = set()
    for name in names("pruned_matmul"):
        with js.config(variant=name):
            if name in against:
                with pytest.raises(ValueError, match=f"variant='{name}'"):
                    js.pruned_matmul(x, weight)
            else:
                call = js.explain(lambda a: js.pruned_matmul(a, weight), x).calls[0]
                ran.add(call.variant(0))
                assert call.variant(0) == name
    assert {"dense"} < ran


def test_an_op_without_variants_is_named():
    with pytest.raises(ValueError, match="op='nothing' is none of grouped_matmul, masked_conv"):
        js.variants("nothing")


def test_every_op_is_known_in_every_build():
    for op in OPS:
        assert all(v.op == op for v in js.variants(op))
