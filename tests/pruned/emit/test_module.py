"""Calls that run in one process only: what is exported does not hold them, a compiled function
keeps what they need alive, and nothing else does.
"""

import dataclasses
import gc
import weakref

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

import jaxsparse as js
from jaxsparse.ops.pruned_matmul import run as pruned_matmul_run
from jaxsparse.ops.pruned_matmul.api import prepare
from jaxsparse.pruned.emit import module
from jaxsparse.pruned.executor import Packed
from jaxsparse.pruned.executors import choice as executors
from jaxsparse.pruned.strips import STRIPS, pack

CALL = "jaxsparse_pruned_matmul"


class Owner:
    """What a call needs in its process."""


@pytest.fixture
def owners(monkeypatch):
    """On the CPU an executor like `code`: it needs the values, and each packing has an owner."""
    if jax.default_backend() != "cpu":
        pytest.skip("it stands in among the CPU's executors")
    found = []

    def owned(problem, candidate, values):
        owner = Owner()
        found.append(weakref.ref(owner))
        return dataclasses.replace(pack(problem, candidate), owner=owner)

    local = STRIPS._replace(pack=owned, needs_values=True, cost=lambda problem: 0.0)
    monkeypatch.setitem(executors.EXECUTORS, "cpu", (local, executors.EXECUTORS["cpu"][-1]))
    monkeypatch.setattr(executors, "_operands", executors.Latest(1, 0))
    return found


def example(rng):
    w = np.where(rng.random((64, 32)) < 0.2, rng.standard_normal((64, 32)), 0).astype(np.float32)
    x = rng.standard_normal((8, 64)).astype(np.float32)
    return x, js.pruned.inspect(w), x @ w


def alive(owners):
    gc.collect()
    return [owner() is not None for owner in owners]


def test_what_is_exported_does_not_hold_it(rng, owners):
    x, plan, want = example(rng)
    f = jax.jit(lambda x: js.pruned_matmul(x, plan, precision="highest"))
    assert CALL in f.lower(x).as_text()
    exported = jax.export.export(f)(x)
    assert CALL not in exported.mlir_module()
    again = jax.export.deserialize(exported.serialize())
    np.testing.assert_allclose(again.call(x), want, atol=1e-5)
    gradient = jax.jit(jax.grad(lambda x: jnp.sum(f(x) ** 2)))
    assert CALL not in jax.export.export(gradient)(x).mlir_module()
    np.testing.assert_allclose(gradient(x), 2 * want @ plan.to_dense().T, atol=1e-4)
    with js.config(variant="strips"):
        np.testing.assert_allclose(f(x), want, atol=1e-5)
        with pytest.raises(ValueError, match="in the process that generated it"):
            jax.export.export(f)(x)


def test_transforms(rng, owners):
    x, plan, want = example(rng)
    f = lambda x: js.pruned_matmul(x, plan, precision="highest")  # noqa: E731
    np.testing.assert_allclose(jax.jit(jax.vmap(f))(x[:, None])[:, 0], want, atol=1e-5)
    back = jax.grad(jax.checkpoint(lambda x: jnp.sum(f(x) ** 2)))
    np.testing.assert_allclose(back(x), 2 * want @ plan.to_dense().T, atol=1e-4)
    with jax.disable_jit():
        np.testing.assert_allclose(back(x), 2 * want @ plan.to_dense().T, atol=1e-4)
    auto = (jax.sharding.AxisType.Auto,)
    mesh = jax.make_mesh((1,), ("data",), devices=jax.devices()[:1], axis_types=auto)
    sharded = jax.jit(jax.shard_map(f, mesh=mesh, in_specs=P("data"), out_specs=P("data")))
    np.testing.assert_allclose(sharded(x), want, atol=1e-5)


def test_a_compiled_function_keeps_it_alive(rng, owners):
    x, plan, want = example(rng)
    compiled = jax.jit(lambda x: js.pruned_matmul(x, plan)).lower(x).compile()
    assert alive(owners) == [True]
    jax.clear_caches()
    jax.jit(lambda x: js.pruned_matmul(x, plan)).lower(x[:5])  # displaces the packing
    assert alive(owners)[0]
    np.testing.assert_allclose(compiled(x), want, atol=1e-5)
    del compiled
    jax.clear_caches()
    assert alive(owners) == [False, True]  # the last packing serves the next trace


def test_packings_are_bounded_by_bytes():
    made = []

    def make(size):
        made.append(size)
        return Packed(0, starts=np.zeros(size, np.uint8))

    kept = executors.Latest(3, 100)
    for key, size in (("a", 40), ("b", 40), ("a", 40), ("c", 40), ("a", 40), ("b", 40)):
        assert kept.get(key, lambda size=size: make(size)).nbytes == size
    assert made == [40, 40, 40, 40]  # c displaced b, which was used before a
    kept.get("large", lambda: make(1000))
    kept.get("large", lambda: make(1000))
    assert made[4:] == [1000]


class Table:
    """Counts as the process's table of code does."""

    def __init__(self):
        self.users = {}

    def pruned_code_add(self, digest, texts, facts):
        self.users[digest] = self.users.get(digest, 0) + 1

    def pruned_code_drop(self, digest):
        self.users[digest] -= 1


def test_generated_code_is_in_the_table_while_it_is_used(rng, monkeypatch):
    table = Table()
    monkeypatch.setattr(executors, "_operands", executors.Latest(1, 0))
    monkeypatch.setattr(module, "module", lambda name: (table, ""))
    monkeypatch.setattr("jaxsparse.pruned.executors.cuda.built", lambda: True)
    some = [executors.executor("cuda", name) for name in ("code", "dense")]
    monkeypatch.setitem(executors.EXECUTORS, "cuda", tuple(some))
    w = np.where(rng.random((256, 128)) < 0.05, rng.standard_normal((256, 128)), 0)
    plan = js.pruned.inspect(w.astype(np.float32))
    params, x = prepare(jnp.zeros((2048, 256)), plan, precision="highest")
    frozen = dataclasses.replace(params, frozen=pruned_matmul_run.Frozen(plan.values))
    run = jax.make_jaxpr(lambda x: pruned_matmul_run._native(frozen, "cuda", x, None, None))
    traced = run(x)
    assert "jaxsparse_in_this_process" in str(traced)
    assert list(table.users.values()) == [1]
    del traced
    problem = frozen.problem("cuda", x)
    values = np.asarray(plan.values)
    executors.packed(problem, "code", (32, 4, 2), values)
    jax.clear_caches()
    gc.collect()
    assert sorted(table.users.values()) == [0, 1]


def test_generated_code_needs_the_table(rng, monkeypatch):
    monkeypatch.setattr(module, "module", lambda name: (None, "this build has no cuda module"))
    x, plan, _ = example(rng)
    params, x = prepare(np.zeros((64, 64), np.float32), plan)
    with pytest.raises(RuntimeError, match="no cuda module"):
        executors.packed(params.problem("cuda", x), "code", None, np.asarray(plan.values))


@pytest.mark.gpu
def test_a_constant_is_exported_without_generated_code(rng):
    w = np.where(rng.random((256, 128)) < 0.05, rng.standard_normal((256, 128)), 0)
    plan = js.pruned.inspect(w.astype(np.float32))
    x = rng.standard_normal((2048, 256)).astype(np.float32)
    f = jax.jit(lambda x: js.pruned_matmul(x, plan, precision="highest"))
    assert CALL in f.lower(x).as_text()
    exported = jax.export.export(f, disabled_checks=js.DISABLE_JAX_EXPORT_CHECKS)(x)
    assert CALL not in exported.mlir_module()
    np.testing.assert_allclose(exported.call(x), x @ w, atol=1e-4)
    np.testing.assert_allclose(f(x), x @ w, atol=1e-4)


def test_the_digest_names_the_facts_too(rng, monkeypatch):
    monkeypatch.setattr(module, "module", lambda name: (Table(), ""))
    digests = set()
    for dtype in (jnp.bfloat16, jnp.float16):
        plan = js.pruned.inspect(np.zeros((64, 64), dtype))
        params, x = prepare(jnp.zeros((64, 64), dtype), plan, preferred_element_type=jnp.float32)
        owner = executors.packed(params.problem("cuda", x), "code", None, np.asarray(plan.values))
        digests.add(owner.code)
    assert len(digests) == 2
