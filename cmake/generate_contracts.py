"""Contracts are data: `contracts/*.toml` becomes C++ decoders, Python constants and a page.

`generate_contracts.py --platform cpu --out-dir D` writes `D/contracts/<handler>.gen.h` for each
handler of the platform, and `D/contracts/enums.gen.h`. `generate_contracts.py --write` writes what
is committed: jaxsparse/core/contract.py and docs/contract.md. Files whose text is unchanged are
left alone.
"""

import argparse
from pathlib import Path

from contract import constants, cpp, pages
from contract.declaration import PLATFORMS, load
from generate_variants import write

ROOT = Path(__file__).resolve().parents[1]


def headers(root: Path, platform: str) -> dict[str, str]:
    """File name -> text of the C++ headers of a platform."""
    contracts = load(root, platform)
    found = {f"{name}.gen.h": cpp.header(h) for name, h in contracts.handlers.items()}
    return found | {"enums.gen.h": cpp.enums(contracts)}


def committed(root: Path) -> dict[Path, str]:
    """Path -> text of what the tree holds of the contracts."""
    cpu, cuda = (load(root, platform) for platform in PLATFORMS)
    return {
        root / "jaxsparse/core/contract.py": constants.module(cpu),
        root / "docs/contract.md": pages.page(cpu, cuda),
    }


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else None)
    parser.add_argument("--platform", choices=PLATFORMS)
    parser.add_argument("--out-dir", type=Path)
    parser.add_argument("--write", action="store_true")
    arguments = parser.parse_args()
    files = committed(ROOT) if arguments.write else {}
    if arguments.platform:
        folder = arguments.out_dir / "contracts"
        folder.mkdir(parents=True, exist_ok=True)
        files |= {folder / k: v for k, v in headers(ROOT, arguments.platform).items()}
    for path, text in files.items():
        write(path, text)


if __name__ == "__main__":
    main()
