"""masked_conv, every variant and dtype once, forward and backward, on small odd cases: what to run
under a memory checker.

    XLA_PYTHON_CLIENT_ALLOCATOR=platform XLA_PYTHON_CLIENT_PREALLOCATE=false \
        compute-sanitizer --tool memcheck python benchmarks/masked_conv/small_cases.py

Exits 1 when a result differs from the reference.
"""

import argparse
import sys

import jax
import jax.numpy as jnp
import numpy as np

import jaxsparse as js
from jaxsparse.testing.cases import cases

TOLERANCE = {"float32": 4e-3, "bfloat16": 4e-2, "float16": 6e-3}


def check(case, dtype: str, variant: str | None) -> str:
    """Run one case; "" when it agrees with the reference, else what is wrong."""
    arrays = {k: jnp.asarray(v).astype(dtype) for k, v in case.arrays().items()}
    rng = np.random.default_rng(1)
    mask = jnp.asarray(rng.random(case.mask_shape) < 0.4)
    index = js.tile_index(mask, (2, 4) if variant else (1, 1))

    def loss(d, implementation):
        y = js.masked_conv(
            d["x"],
            d["kernel"],
            index,
            bias=d["bias"],
            base=d["base"],
            activation="relu",
            implementation=implementation,
            **case.options,
        )
        return jnp.sum(y.astype(jnp.float32) ** 2) / y.size, y

    def run(implementation):
        (_, y), grads = jax.value_and_grad(loss, has_aux=True)(arrays, implementation)
        return {"y": y, **grads}

    with js.config(variant=variant):
        got = run(None)
    want = run("reference")
    for name, exact in want.items():
        a, b = np.asarray(got[name], np.float64), np.asarray(exact, np.float64)
        error = np.abs(a - b).max(initial=0.0) / max(1e-2, np.abs(b).max(initial=0.0))
        if not error <= TOLERANCE[dtype]:
            return f"{name}: error {error:.1e}"
    return ""


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--every", type=int, default=1, help="only each n-th case")
    parser.add_argument("--dtype", nargs="*", default=list(TOLERANCE))
    arguments = parser.parse_args()
    platform = "cuda" if jax.default_backend() == "gpu" else "cpu"
    names = [v.name for v in js.variants("masked_conv") if v.platform == platform]
    ran = failed = 0
    for case in cases("odd")[:: arguments.every]:
        for dtype in arguments.dtype:
            for variant in [None, *names]:
                try:
                    wrong = check(case, dtype, variant)
                except ValueError as error:
                    if "does not take this problem" not in str(error):
                        raise
                    continue
                ran += 1
                failed += bool(wrong)
                if wrong:
                    print(f"{case.name} {dtype} {variant}: {wrong}", flush=True)
    print(f"{ran} runs, {failed} failed")
    return int(failed > 0 or ran == 0)


if __name__ == "__main__":
    sys.exit(main())
