"""The table that a run prints, and what is wrong."""

import collections
import subprocess
import tomllib
from pathlib import Path
from typing import Any

ROOT = Path(__file__).parents[3]
#: The device that runs every variant.
HOPPER = "sm_90"
#: Handler -> the tables (cuda/variants) whose rows its attribute `variant` numbers.
TABLES = {"masked_conv": ("masked_conv", "masked_conv_mma")}
TABLES |= {name: (name,) for name in ("masked_conv_dkernel", "masked_matmul", "grouped_matmul")}


def readable(symbols: list[str]) -> list[str]:
    """Names as C++ writes them."""
    done = subprocess.run(["c++filt"], input="\n".join(symbols), capture_output=True, text=True)
    return done.stdout.splitlines()


def numbered() -> set[str]:
    """The handlers' variants that have a number: "masked_conv 16"."""
    found = set[str]()
    for handler, tables in TABLES.items():
        for table in tables:
            rows = tomllib.loads((ROOT / f"cuda/variants/{table}.toml").read_text())["variant"]
            found |= {f"{handler} {row.get('number', place)}" for place, row in enumerate(rows)}
    return found


def report(results: list[dict[str, Any]]) -> int:
    """Print the results of the processes; 1 if something is wrong or lacking."""
    ran, refused, launches = (collections.Counter[str]() for _ in range(3))
    wrong: dict[str, dict[str, Any]] = {}
    variants = set[str]()
    for result in results:
        ran.update(result["ran"])
        refused.update(result["refused"])
        launches.update(result["launches"])
        variants |= {*result["variants"]}
        for kind, found in result["wrong"].items():
            wrong.setdefault(kind, found | {"devices": []})["devices"] += found["devices"]
    print("| handler | ran | refused |\n|---|---|---|")
    for name in sorted(ran.keys() | refused.keys()):
        print(f"| {name} | {ran[name]} | {refused[name]} |")
    left = readable(sorted(name for name, number in launches.items() if not number))
    devices = sorted({name for result in results for name in result["devices"]})
    print(f"\n{len(launches) - len(left)} of {len(launches)} kernels launched; for {devices}")
    lacking = [f"{name}: no call of it ran" for name in sorted(refused) if not ran[name]]
    lacking += [f"no call launches {name}" for name in left]
    if HOPPER in devices:
        numbers = sorted(numbered() - variants)
        lacking += [f"{name}: no call of this variant ran" for name in numbers]
    for found in wrong.values():
        print(f"\nWRONG on {', '.join(found['devices'])}: {found['text']}\n  {found['call']}")
    print("".join(f"\nLACKING {text}" for text in lacking))
    return bool(wrong or lacking)
