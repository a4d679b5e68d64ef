"""The C extensions of this package that are missing in this installation.

They are built if a C compiler is available. Without them, records are processed in Python, many times slower.
"""

from collections.abc import Sequence
from importlib.util import find_spec
from typing import Final

EXTENSIONS: Final = ("streamhouse.format._records", "streamhouse.format._schema_columns")


def missing_extensions() -> tuple[str, ...]:
    return tuple(name for name in EXTENSIONS if find_spec(name) is None)


def extension_warning(missing: Sequence[str]) -> str:
    """A log line about the extensions that are missing; empty if none is."""
    if not missing:
        return ""
    return (
        f"C extensions are missing, so records are processed in Python, many times slower; missing={','.join(missing)} "
        "do=install a C compiler and Python's headers, then reinstall StreamHouse"
    )
