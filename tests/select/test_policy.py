"""`js.config(policy=)`: a user's own choice, of a variant while tracing or by the density."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest

import jaxsparse as js
from jaxsparse.select import Option, Problem

PLATFORM = {"gpu": "cuda"}.get(jax.default_backend(), jax.default_backend())
#: On a GPU the call that chooses on the device must hold several variants.
IMAGES, C, OUT = ((4, 40, 40), 256, 256) if PLATFORM == "cuda" else ((2, 16, 24), 32, 128)
X, KERNEL = jnp.ones((*IMAGES, C)), jnp.ones((3, 3, C, OUT)) / C
RNG = np.random.default_rng(0)
SPARSE, FULL = jnp.asarray(RNG.random(IMAGES) < 0.1), jnp.ones(IMAGES, bool)


def conv(mask, x=X):
    return js.masked_conv(x, KERNEL, js.tile_index(mask, (1, 1)))


def told(mask, call=conv):
    return js.explain(call, mask).calls[-1]


def home(policy):
    """`policy` for this machine's platform, and the default for others."""
    return lambda problem, options: (
        policy(problem, options) if problem.platform == PLATFORM else None
    )


def last(problem, options):
    return options[-1]


def test_what_a_policy_gets():
    seen = []

    def policy(problem, options):
        seen.append((problem, options))

    with js.config(policy=policy):
        jax.jit(conv).lower(SPARSE)
    assert {problem.platform for problem, _ in seen} >= {PLATFORM}
    assert len({(p.platform, p.op, p.n_tiles) for p, _ in seen}) == len(seen)  # once for each
    problem, options = next((p, o) for p, o in seen if p.platform == PLATFORM)
    assert isinstance(problem, Problem)
    assert (problem.op, problem.called, problem.dtype) == ("masked_conv", "masked_conv", "float32")
    assert problem.features["pixels"] == problem.n_tiles == SPARSE.size
    assert problem.features["taps"] == 9
    with pytest.raises(TypeError):
        problem.features["taps"] = 1
    assert all(isinstance(option, Option) for option in options)
    with pytest.raises(dataclasses.FrozenInstanceError):
        options[0].us = 0.0
    names = [option.name for option in options]
    assert "dense" in names
    assert len(set(names)) == len(names)
    assert any(option.default for option in options)
    assert any(option.us is not None for option in options)
    assert {v.name for v in js.variants("masked_conv") if v.platform == PLATFORM} >= {*names}


@pytest.mark.parametrize("answer", ["option", "name", "variant"])
def test_a_policy_chooses(answer):
    def policy(problem, options):
        dense = next(option for option in options if option.name == "dense")
        return {"option": dense, "name": "dense", "variant": dense.variant}[answer]

    want = conv(SPARSE)
    with js.config(policy=policy):
        call = told(SPARSE)
        np.testing.assert_allclose(jax.jit(conv)(SPARSE), want, rtol=1e-4)
    assert call.choice.first == call.variant(1) == "dense"
    assert "js.config(policy=)" in str(call)
    assert told(SPARSE).choice.first != "dense"


def test_none_is_the_default():
    free = told(SPARSE).choice
    with js.config(policy=lambda problem, options: None):
        assert told(SPARSE).choice == free


def test_a_demanded_variant_goes_before_a_policy():
    with js.config(policy=last, variant="dense"):
        assert told(SPARSE).choice.reason.value == "js.config(variant=)"


def test_a_policy_is_part_of_the_jit_key():
    ran = []

    def policy(problem, options):
        ran.append(problem)

    traces = []

    @jax.jit
    def f(mask):
        traces.append(mask)
        return conv(mask)

    f(SPARSE)
    with js.config(policy=policy):
        f(SPARSE)
        before = len(ran)
        f(SPARSE)
    assert len(ran) == before > 0
    assert len(traces) == 2


@pytest.mark.parametrize("together", [True, False])
def test_a_policy_by_density(together):
    """In the one call whose kernel chooses, and by `lax.switch`: the same pick."""

    def policy(problem, options):
        if problem.op != "masked_conv":
            return None  # the gradient of the kernel chooses while it is traced
        several = [option for option in options if option.on_device]
        if not together:
            several = [option for option in options if not option.on_device][:2]
        several = several[:1] + several[-1:]
        return several, lambda density: (density > 0.5).astype(jnp.int32) * 7  # clipped

    with js.config(selection="static"):
        want = [conv(mask) for mask in (SPARSE, FULL)]
    with js.config(policy=home(policy)):
        traces = []

        @jax.jit
        def f(mask):
            traces.append(mask)
            return conv(mask)

        for mask, y in zip((SPARSE, FULL), want, strict=True):
            np.testing.assert_allclose(f(mask), y, rtol=1e-4)
        assert len(traces) == 1
        sparse, full = told(SPARSE), told(FULL)
        text = f.lower(SPARSE).as_text()
        batch = jnp.stack([SPARSE, FULL])
        np.testing.assert_allclose(jax.vmap(conv)(batch), jnp.stack(want), rtol=1e-4)
        slope = jax.jit(jax.grad(lambda x: conv(SPARSE, x).sum()))(X)
    np.testing.assert_allclose(slope, jax.grad(lambda x: conv(SPARSE, x).sum())(X), rtol=1e-3)
    assert sparse.choice.how == ("device" if together else "switch")
    assert ("jaxsparse_masked_conv_device" in text) == together
    assert together or "stablehlo.case" in text
    names = [c.variant for c in sparse.choice.candidates or sparse.choice.rungs]
    assert sparse.variant(sparse.counts[0]) == names[0] != names[-1] == full.variant(full.counts[0])
    assert "by its function of the density" in str(sparse)


def test_the_function_of_the_density_decides():
    """Not the counts' costs: the variants of one call, each of them picked at any density."""

    def pick(place):
        def policy(problem, options):
            several = [option for option in options if option.on_device]
            return several, lambda density: jnp.int32(place) + 0 * density.astype(jnp.int32)

        return home(policy)

    ran = set()
    for place in (0, 1):
        with js.config(policy=pick(place)):
            call = told(SPARSE)
            ran.add(call.variant(call.counts[0]))
            got = js.masked_conv(X, KERNEL, SPARSE)  # which indexes the mask, and chooses with it
            np.testing.assert_allclose(got, conv(SPARSE), rtol=1e-4)
    assert len(ran) == 2


def test_other_ops_ask_too():
    ops = set()

    def policy(problem, options):
        ops.add(problem.called)
        return options[-1] if problem.platform == PLATFORM else None

    weight = np.eye(32, dtype=np.float32)
    tokens = jnp.ones((6, 32))
    calls = {
        "masked_matmul": lambda: js.masked_matmul(
            tokens, jnp.eye(32), a_mask=jnp.ones((6, 32), bool)
        ),
        "masked_dense": lambda: js.masked_dense(tokens, jnp.eye(32), jnp.ones(6, bool)),
        "grouped_matmul": lambda: js.grouped_matmul(tokens, jnp.eye(32)[None], jnp.asarray([6])),
        "pruned_matmul": lambda: js.pruned_matmul(tokens, js.pruned.inspect(weight)),
        "bounded_matmul": lambda: js.bounded_matmul(
            tokens, js.bounded.inspect(weight, 0.0, 2.0)
        ).materialize(),
    }
    for name, call in calls.items():
        with js.config(policy=policy):
            np.testing.assert_allclose(jax.jit(call)(), tokens, rtol=1e-3)
        assert name in ops


WRONG = {
    "unknown": (lambda p, o: "no such", ValueError, r"policy returned 'no such', which does not"),
    "type": (lambda p, o: 3, TypeError, r"policy returned 3; it returns None"),
    "places": (lambda p, o: (o, 3), TypeError, r"policy returned .*; it returns None"),
    "none": (lambda p, o: ((), lambda d: d), ValueError, r"returned 0 options"),
    "pair": (lambda p, o: ("dense", lambda d: d), TypeError, r"a pair of 'dense'"),
    "inner": (lambda p, o: ([3], lambda d: d), TypeError, r"policy returned a int"),
    "float": (lambda p, o: (o[:2], lambda d: d), TypeError, r"density returned float32\[\]"),
    "shape": (
        lambda p, o: (o[:2], lambda d: jnp.zeros(2, jnp.int32)),
        TypeError,
        r"density returned int32\[2\]",
    ),
}


@pytest.mark.parametrize("name", WRONG)
def test_wrong_answers(name):
    policy, error, words = WRONG[name]
    with js.config(policy=policy), pytest.raises(error, match=f"^masked_conv: .*{words}"):
        conv(SPARSE)


def test_wrong_policies():
    with pytest.raises(TypeError, match=r"^policy must be a function, not dict"):
        js.config(policy={})

    class Unhashable:
        __hash__ = None

        def __call__(self, problem, options):
            return None

    with pytest.raises(TypeError, match=r"^policy is a Unhashable that cannot be hashed"):
        js.config(policy=Unhashable())


def test_an_op_that_chooses_while_traced():
    def policy(problem, options):
        return options, lambda density: jnp.int32(0)

    weight = js.pruned.inspect(np.eye(32, dtype=np.float32))
    with js.config(policy=policy), pytest.raises(ValueError, match=r"pruned_matmul: .*return one"):
        js.pruned_matmul(jnp.ones((6, 32)), weight)
