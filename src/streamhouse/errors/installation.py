"""Installation: how a missing part of this package is installed, for error texts that say so.

The distribution is not called like the command and the import: on PyPI, `streamhouse` is somebody else's package.
"""

from typing import Final

DISTRIBUTION: Final = "pystreamhouse"


def install_command(extra: str) -> str:
    """The command that adds an extra's packages to this installation. pip takes the distribution that is installed, so
    it works before the distribution can be had from an index."""
    return f'pip install "{DISTRIBUTION}[{extra}]"'
