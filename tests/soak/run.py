"""Long runs: `python tests/soak/run.py --recompiles 20000 --calls 2000000 --weights 40`, or
`--job training --seconds 1800`.

Measures memory, which has to stay flat, and prints a table. Exits 1 if something grew, was not
freed, or differs from the dense network.
"""

import argparse
import os
import sys
from pathlib import Path

if __name__ == "__main__":
    # Programs are compiled far more often than they run.
    flags = os.environ.get("XLA_FLAGS", "")
    os.environ["XLA_FLAGS"] = flags + " --xla_backend_optimization_level=0"

import jax

sys.path.insert(0, str(Path(__file__).parents[1]))
from soak.calls import calls
from soak.recompiles import recompiles
from soak.report import Finding, shown
from soak.weights import weights

JOBS = ("memory", "training")


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--job", choices=JOBS, default="memory")
    parser.add_argument("--recompiles", type=int, default=20_000, help="programs compiled")
    parser.add_argument("--calls", type=int, default=2_000_000, help="of jitted functions")
    parser.add_argument("--weights", type=int, default=40, help="of 1500 x 1500, dropped")
    parser.add_argument("--seconds", type=float, default=60.0, help="of the training job")
    parser.add_argument("--seed", type=int, default=0, help="of the training job")
    given = parser.parse_args()
    jax.config.update("jax_numpy_dtype_promotion", "strict")
    findings: list[Finding] = []
    if given.job == "training":
        from soak.training import training

        findings += training(given.seconds, given.seed)
    else:
        findings += weights(given.weights) if given.weights else []
        findings += calls(given.calls) if given.calls else []
        findings += recompiles(given.recompiles) if given.recompiles else []
    return int(not shown(findings))


if __name__ == "__main__":
    sys.exit(main())
