"""Needs: which PySpark will do.

Data path   none; asked when a session learns of the format, and when a source is used
Owns        the oldest version, and what is said of older ones
Leaves      Java to `java`; what is to be installed to the package's extras
"""

import re
from typing import Final

from streamhouse.errors import Misconfigured
from streamhouse.errors.installation import install_command

OLDEST: Final = (4, 3)
"""Streams tell a Python source their limits since then."""


def check_pyspark(version: str) -> None:
    """Raise `Misconfigured` for a PySpark that lacks parts, before an import of one of these fails."""
    found = tuple(int(number) for number in re.findall(r"\d+", version)[:2])
    if found < OLDEST:
        raise Misconfigured(
            f"this PySpark is too old; version={version} needs={OLDEST[0]}.{OLDEST[1]}"
            f" do={install_command('spark')} in the Python of driver and executors, with a Spark of that version"
        )
