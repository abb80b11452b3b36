"""What Python takes of the contracts: the values of enums and the columns of tables."""

from contract.declaration import Contracts

_HEAD = '''"""Values and table columns that Python and the native handlers share.

Made by `cmake/generate_contracts.py` from `contracts/*.toml`; a test compares.
"""

import enum
'''


def module(contracts: Contracts) -> str:
    """The text of jaxsparse/core/contract.py."""
    parts = [_HEAD]
    for name, values in contracts.enums.items():
        base = "IntFlag" if name.endswith("Flag") else "IntEnum"
        lines = [f"    {key.upper()} = {value}" for key, value in values.items()]
        parts.append(_class(name, base, f"Values of `{name}` in the contracts.", lines))
    for name, columns in contracts.tables.items():
        lines = []
        for place, (column, text) in enumerate(columns.items()):
            lines += [f"    #: {text}", f"    {column.upper()} = {place}"]
        parts.append(_class(name, "IntEnum", f"Columns of a `{name}`, uint32.", lines))
    return "\n\n".join(parts)


def _class(name: str, base: str, text: str, lines: list[str]) -> str:
    return "\n".join([f"class {name}(enum.{base}):", f'    """{text}"""', "", *lines]) + "\n"
