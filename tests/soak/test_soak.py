"""Short forms of the long runs: they find nothing wrong, and they find a leak of each kind.

`make soak` runs them at length, in a process of their own. Resident memory is judged there: in a
worker of the suite, which holds gigabytes of other tests, it moves by more than a short run may.
"""

import weakref

import jax
import pytest

from jaxsparse.ffi.register import module
from jaxsparse.pruned import strips
from jaxsparse.pruned.executors.choice import Latest
from jaxsparse.select import select
from soak import families, memory, network, recompiles, run, training, weights
from soak.calls import calls
from soak.families import FAMILIES, PLAIN, Program, Sizes
from soak.memory import Held, held
from soak.report import Finding, shown

pytestmark = pytest.mark.skipif(module("cpu")[0] is None, reason="no CPU module")


@pytest.fixture
def small_caches(monkeypatch):
    """Small caches are full early; otherwise they grow through the whole of a short run."""
    for cache in (select._chosen, strips._best_tile):
        monkeypatch.setattr(cache, "_most", 4)


@pytest.fixture
def objects_alone(monkeypatch):
    """What is counted is judged, and resident memory is not."""
    monkeypatch.setattr(memory, "resident", lambda: 0)


def bad(findings):
    return [(f.what, f.found, f.allowed) for f in findings if not f.good]


@pytest.mark.slow
def test_recompiles_leave_nothing(small_caches, objects_alone):
    assert not bad(recompiles.recompiles(64, bounded=100))


@pytest.mark.parametrize("name", FAMILIES)
def test_every_family_draws_by_both_seeds(name):
    """Equal seeds of sizes give equal shapes; other seeds of values give other arrays."""
    one, other, new = (FAMILIES[name](Sizes((1, s), (2, v))) for s, v in ((0, 0), (0, 1), (5, 0)))
    shapes = [[v.shape for v in p.operands] for p in (one, other, new)]
    assert shapes[0] == shapes[1] != shapes[2]
    assert any((a != b).any() for a, b in zip(one.operands, other.operands, strict=True))
    assert one.frozen or "pruned" not in name


def test_functions_and_objects_that_stay_are_seen(small_caches, monkeypatch):
    """Each program leaves a function and an object of the package."""
    kept = []

    def leaking(n: Sizes) -> Program:
        program = PLAIN["products"](n)
        kept.append((program.run, Latest(1, 1)))
        gone = weakref.ref(program.run)
        return Program(program.run, program.operands, frozen=(gone,))

    monkeypatch.setattr(recompiles, "FAMILIES", {"leaking": leaking})
    found = {what for what, *_ in bad(recompiles.recompiles(40, bounded=20))}
    assert found == {"objects of jaxsparse grew by", "functions, patterns, plans alive"}


def test_memory_that_stays_is_seen(small_caches, monkeypatch):
    kept = []

    def leaking(n: Sizes) -> Program:
        kept.append(b"x" * 2_000_000)
        return PLAIN["products"](n)

    monkeypatch.setattr(recompiles, "FAMILIES", {"leaking": leaking})
    assert [what for what, *_ in bad(recompiles.recompiles(40))] == ["memory grew by"]


def test_arrays_that_stay_are_counted():
    before = held()
    kept = jax.numpy.ones(7)
    assert (held() - before).arrays == 1
    assert kept.size == 7


def test_calls_leave_nothing(objects_alone):
    assert not bad(calls(6000, every=1000))


def test_dropped_weights_leave_nothing(objects_alone):
    assert not bad(weights.weights(4, side=300))


def test_a_weight_that_is_kept_is_seen(monkeypatch):
    kept = []

    def leaking(seed, x, side, operand):
        kept.append(families.Sizes((seed,), (seed,)))
        return [weakref.ref(kept[-1])]

    monkeypatch.setattr(weights, "used", leaking)
    assert len(bad(weights.weights(4, side=9))) == 2


def test_the_networks_agree(objects_alone):
    """Loss and gradients for some steps."""
    found = training.training(0, least=120)
    assert not bad([f for f in found if f.what != "loss at first and last"])


def test_a_wrong_gradient_is_seen(monkeypatch):
    """The dense network's convolutions ignore the mask."""
    own = network.Dense.conv
    monkeypatch.setattr(
        network.Dense, "conv", lambda self, x, k, mask, *rest: own(self, x, k, mask | True, *rest)
    )
    training.compared.clear_cache()
    found = {what for what, *_ in bad(training.training(0))}
    training.compared.clear_cache()
    assert {"largest difference of loss", "largest difference of gradient"} <= found


def test_the_command_fails_when_something_grew(monkeypatch, capsys):
    findings = [Finding("memory grew by", "9 MB", "8 MB", False)]
    monkeypatch.setattr(run, "calls", lambda count: findings)
    given = ["run.py", "--recompiles", "0", "--weights", "0", "--calls", "5"]
    monkeypatch.setattr("sys.argv", given)
    assert run.main() == 1
    assert "NO" in capsys.readouterr().out
    assert shown([Finding("memory", "8 MB")])


def test_differences_are_field_by_field():
    one, two = Held(5, 4, 3, 2, 1, 0), Held(1, 1, 1, 1, 1, 1)
    assert (one - two).each == (4, 3, 2, 1, 0, -1)
    assert (one + two - two) == one
