"""Runs of the tests as one table: `python cmake/report_tests.py <junit.xml>...`.

Passed, failed, and skipped by reason, with how many tests each; then what failed. Of several runs,
those tests that each run has and skipped are listed, too: they test nothing, unless `--but` matches
the reason. Exits 1 where something failed, nothing ran, or a test was skipped everywhere.
"""

import argparse
import re
import sys
import xml.etree.ElementTree as ET
from collections import Counter


def report(paths: list[str], but: str | None = None) -> tuple[list[str], bool]:
    """The lines of the table, and whether the runs are good."""
    skipped: Counter[str] = Counter()
    only: dict[str, str] = {}
    failed: list[str] = []
    ran: set[str] = set()
    runs: Counter[str] = Counter()
    passed = 0
    for path in paths:
        here: set[str] = set()
        for case in ET.parse(path).getroot().iter("testcase"):
            name = f"{case.get('classname')}::{case.get('name')}"
            here.add(name)
            if (skip := case.find("skipped")) is not None:
                why = skip.get("message", "no reason")
                if why == "collection skipped":  # a whole file; pytest says why in the text
                    why = (skip.text or why).rsplit("Skipped: ", 1)[-1].strip()[:-2]
                skipped[why] += 1
                only[name] = why
                continue
            ran.add(name)
            if case.find("failure") is not None or case.find("error") is not None:
                failed.append(name)
            else:
                passed += 1
        runs.update(here)
    rows = [(passed, "passed"), (len(failed), "failed")]
    rows += [(count, f"skipped: {why}") for why, count in skipped.most_common()]
    lines = [f"{count:7}  {what}" for count, what in rows]
    nowhere = [
        f"skipped in every run: {name}: {why}"
        for name, why in only.items()
        if runs[name] == len(paths) > 1 and name not in ran and not (but and re.search(but, why))
    ]
    good = passed > 0 and not failed and not nowhere
    return [*lines, *(f"failed: {name}" for name in failed), *nowhere], good


def main() -> int:
    """Command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("runs", nargs="+", metavar="junit.xml")
    parser.add_argument("--but", help="a regular expression of reasons to skip in every run")
    given = parser.parse_args()
    lines, good = report(given.runs, given.but)
    print("\n".join(lines))
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
