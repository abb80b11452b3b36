"""`import jaxsparse` stays short: third-party packages and the operations load where they are first
used.
"""

import ast
import json
import os
import statistics
import subprocess
import sys

import pytest

#: What some op, layer, tool or example needs, and the import does not.
LATE = ("scipy", "rich", "typer", "flax", "matplotlib", "PIL", "optax", "sklearn")
#: The import's CPU time as a share of `import jax`'s, in one process. It is near 0.2.
MOST = 0.4

CLOCK = """
import time
start = time.process_time()
import jax
middle = time.process_time()
import jaxsparse
print((time.process_time() - middle) / (middle - start))
"""


def fresh(code: str) -> str:
    """What a new process prints. It may keep bytecode, as an installed package does."""
    keep = {k: v for k, v in os.environ.items() if k != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", code]
    return subprocess.run(command, env=keep, capture_output=True, text=True, check=True).stdout


def test_third_party_packages_are_not_loaded():
    code = (
        "import json, sys, jax; before = set(sys.modules); import jaxsparse; "
        "print(json.dumps([*set(sys.modules) - before]))"
    )
    modules = json.loads(fresh(code))
    assert "jax.extend" not in modules  # it loads Pallas
    assert "jaxsparse.ops" not in modules
    packages = {name.partition(".")[0] for name in modules}
    assert "jaxsparse" in packages
    assert packages.isdisjoint(LATE)


@pytest.mark.parametrize(
    "use",
    [
        "js.nn.nnx.MaskedConv",
        "js.nn.linen.MaskedConv",
        "js.pruned.tune",
        "js.bounded.radixnet_layer",
        "js.bounded.Network",
        "js.masked_conv",
        "js.ops.route",
        "js.prune_model",
        "js.nn.sparse_attention_fn",
    ],
)
def test_lazy_parts_are_there(use):
    """Each in a process of its own: nothing else has loaded it."""
    assert fresh(f"import jaxsparse as js\nprint(callable({use}))") == "True\n"


def test_an_exported_function_loads_before_an_operation_is_used(tmp_path):
    """Its types are registered by the import alone."""
    file = tmp_path / "exported"
    write = (
        "import jax, numpy as np, jaxsparse as js; from jax import export; "
        "layer = js.bounded.inspect(np.eye(4, dtype='f'), 0.0, 1.0); "
        "net, route = js.bounded.network([layer]), js.Routing(*np.ones((4, 1), 'i4')); "
        "made = export.export(jax.jit(lambda *each: each))(net, route); "
        f"open({str(file)!r}, 'wb').write(made.serialize())"
    )
    read = (
        "import sys, jaxsparse; from jax import export; "
        f"made = export.deserialize(bytearray(open({str(file)!r}, 'rb').read())); "
        "print(made.out_tree, 'jaxsparse.ops' in sys.modules)"
    )
    fresh(write)
    told = fresh(read)
    assert "Network" in told
    assert "Routing" in told
    assert told.endswith("False\n")


def test_variants_are_known_before_an_operation_is_used():
    """Also those that are not rows of a table: an operation tells them when it is imported."""
    listed = "{op: [v[:3] for v in js.variants(op)] for op in OPS}"
    code = "import jaxsparse as js; from jaxsparse.select.variants import OPS; "
    first = fresh(f"{code}print({listed})")
    assert first == fresh(f"{code}js.ops.route; print({listed})")
    names = sorted({name for rows in ast.literal_eval(first).values() for _, _, name in rows})
    assert {"dense", "strips"} <= {*names}
    fresh("import jaxsparse as js\nwith js.config(variant='strips'): pass")
    fresh(f"import jaxsparse as js\nfor name in {names}: js.config(variant=name)")


def test_an_exported_operation_runs_before_one_is_used(tmp_path):
    """The targets of its calls are registered by the import alone."""
    file = tmp_path / "exported"
    write = (
        "import jax, jax.numpy as jnp, jaxsparse as js; from jax import export; "
        "a = jnp.ones((2, 8, 8, 8)); k = jnp.ones((3, 3, 8, 8)); m = jnp.ones((2, 8, 8), bool); "
        "checks = js.DISABLE_JAX_EXPORT_CHECKS; "
        "made = export.export(jax.jit(js.masked_conv), disabled_checks=checks)(a, k, m); "
        f"open({str(file)!r}, 'wb').write(made.serialize())"
    )
    read = (
        "import jax.numpy as jnp, jaxsparse; from jax import export; "
        f"made = export.deserialize(bytearray(open({str(file)!r}, 'rb').read())); "
        "a = jnp.ones((2, 8, 8, 8)); k = jnp.ones((3, 3, 8, 8)); m = jnp.ones((2, 8, 8), bool); "
        "print(made.call(a, k, m)[0, 4, 4, 0])"
    )
    fresh(write)
    assert fresh(read) == "72.0\n"


def test_tune_stays_a_function_when_its_package_is_loaded():
    code = "import jaxsparse as js, jaxsparse.tune.tuner; print(callable(js.tune))"
    assert fresh(code) == "True\n"


def test_the_import_is_short_beside_jax():
    fresh(CLOCK)  # bytecode is written
    assert statistics.median(float(fresh(CLOCK)) for _ in range(5)) < MOST
