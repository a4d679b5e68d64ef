"""Directories that survive a power cut.

Data path   none; called when an embedded store is opened or meets a new folder
Owns        making a directory so that its entry is durable
Leaves      files in it to the stores
"""

import asyncio
import os
from pathlib import Path

from streamhouse.errors import Misconfigured


class SyncFailed(OSError):
    """The system could not write, and may have dropped what it could not: asking again would prove nothing."""


def sync_directory(path: Path) -> None:
    """Make the entries of a directory durable; raise `SyncFailed` when they may be lost."""
    descriptor = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    except OSError as error:
        raise SyncFailed(error.errno, error.strerror, str(path)) from error
    finally:
        os.close(descriptor)


def make_durable(path: Path) -> None:
    """Make a directory and its missing parents; their entries are durable on return."""
    missing = [each for each in (path, *path.parents) if not each.exists()]
    for each in reversed(missing):
        each.mkdir(exist_ok=True)
        sync_directory(each.parent)


async def make_durable_parent(path: str) -> None:
    """The folder of a file that is about to be created; raise `Misconfigured` when it can't be made."""
    parent = Path(path).parent
    try:
        await asyncio.get_running_loop().run_in_executor(None, make_durable, parent)
    except OSError as error:
        raise Misconfigured(
            f"the folder can't be made; path={parent} why={error.strerror} do=make it, or choose another place"
        ) from error
