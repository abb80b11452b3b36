"""Contracts: what is generated is what is committed; a declaration that cannot be is refused."""

import shutil

import pytest
from ffi.hostile.draw import ROOT, handlers

from jaxsparse.ffi.register import module

CMAKE = ROOT / "cmake"


@pytest.fixture
def generator(monkeypatch):
    monkeypatch.syspath_prepend(str(CMAKE))
    import generate_contracts

    return generate_contracts


@pytest.fixture
def expressions(monkeypatch):
    monkeypatch.syspath_prepend(str(CMAKE))
    from contract import expressions

    return expressions


def test_what_is_committed_is_what_the_contracts_say(generator):
    for path, text in generator.committed(ROOT).items():
        assert path.read_text() == text, f"{path}: run cmake/generate_contracts.py --write"


def test_every_handler_of_the_cpu_has_a_contract():
    cpu, why = module("cpu")
    if cpu is None:
        pytest.skip(why)
    assert set(cpu.registrations()) == {f"jaxsparse_{name}" for name in handlers("cpu")}


@pytest.mark.parametrize("platform", ["cpu", "cuda"])
def test_every_header_checks_what_its_contract_says(generator, platform):
    headers = generator.headers(ROOT, platform)
    assert "kRelu6 = 2" in headers["enums.gen.h"]
    text = headers["masked_conv.gen.h"]
    most = {"cpu": 2**31 - 1, "cuda": 2**30}[platform]
    assert f'check.Range("groups", c.groups, INT64_C(1), INT64_C({most}));' in text
    assert 'Checked(c.channels) / Checked(c.groups)), "channels // groups");' in text
    assert 'check.Type("kernel", c.kernel, {c.x.type}, "of the type of x");' in text


def test_expressions(expressions):
    values = {"n": 33, "k": 2}
    assert expressions.evaluate("words(n) + ceil(n, 4) * k", values) == 2 + 18
    assert expressions.evaluate("n if k == 2 else 0", values) == 33
    assert expressions.evaluate("1 <= k <= n and not_there == 1 if k == 3 else 1", values) == 1
    assert expressions.evaluate("given(x) or size(y) == 4", values, {"x": 0, "y": 4})
    assert expressions.names("given(x) or words(n) == k") == {"n", "k"}
    assert expressions.to_cpp("n // k - 2**40", lambda n: f"c.{n}") == (
        "((Checked(c.n) / Checked(c.k)) - Checked(INT64_C(1099511627776)))"
    )
    for wrong in ("n.real", "print(n)", "n +", "'n'"):
        with pytest.raises(ValueError, match=r"not an expression|may say"):
            expressions.evaluate(wrong, values)


def test_the_shapes_of_a_platform_stand_in_the_place_of_the_shared_one(generator):
    text = {p: generator.headers(ROOT, p)["masked_matmul.gen.h"] for p in ("cpu", "cuda")}
    assert 'check.Fail("b must be [b_lists, depth, columns]");' in text["cpu"]
    assert "c.b.rank == 3 && (Checked(c.variant) == Checked(5))" in text["cuda"]


HANDLER = """
[[handler]]
name = "odd"
operands = [{ name = "x", type = "f32", shape = ["n"] }]
results = [{ name = "out", type = "f32", shape = ["n"] }]
attributes = [{ name = "k" }]
relations = ["k == n"]
"""


@pytest.mark.parametrize(
    ("before", "after", "message"),
    [
        ('"k == n"', '"k == m"', "m has no value"),
        ('name = "k"', 'name = "x"', "x names two things"),
        ('type = "f32", shape = ["n"] }]\nres', 'type = "W", shape = ["n"] }]\nres', "'W'"),
        ('["n"] }]\nattr', '["n +"] }]\nattr', "not an expression"),
    ],
)
def test_a_contract_that_cannot_be_is_refused(generator, tmp_path, before, after, message):
    (tmp_path / "contracts").mkdir()
    shutil.copy(ROOT / "contracts/enums.toml", tmp_path / "contracts")
    path = tmp_path / "contracts/odd.toml"
    path.write_text(HANDLER)
    assert "Checked(c.k) == Checked(c.n)" in generator.headers(tmp_path, "cpu")["odd.gen.h"]
    assert before in HANDLER
    path.write_text(HANDLER.replace(before, after))
    with pytest.raises(ValueError, match=f"contract of odd on cpu: .*{message}"):
        generator.headers(tmp_path, "cpu")
