"""A hook for a child process: what blocks is written down when it happens on a thread that runs an event loop.

Used as `sitecustomize` of an agent: Python tells audit hooks of every file, folder, process, sleep and name lookup.
"""

import os
import sys
import traceback
from asyncio import events
from typing import Final

BLOCKING: Final = ("open", "os.", "shutil.", "glob.", "sqlite3.", "subprocess.", "time.sleep", "socket.getaddrinfo")
HARMLESS: Final = ("/proc/", "<frozen importlib")
"""Files that are no files; and what is imported on first use, once."""


def watch(armed_path: str, found_path: str) -> None:
    """Note blocking calls, one line each, from the moment that `armed_path` is there."""
    seen: set[str] = set()
    inside = False

    def hook(event: str, args: tuple[object, ...]) -> None:
        nonlocal inside
        if inside or not event.startswith(BLOCKING) or events._get_running_loop() is None:
            return
        inside = True
        try:
            if os.path.exists(armed_path):
                note(event, args)
        finally:
            inside = False

    def note(event: str, args: tuple[object, ...]) -> None:
        frames = traceback.extract_stack(limit=40)
        words = [str(args), *(frame.filename for frame in frames)]
        ours = [frame for frame in frames if "/streamhouse/" in frame.filename]
        if not ours or any(harmless in word for word in words for harmless in HARMLESS):
            return
        line = f"{event} at {ours[-1].filename}:{ours[-1].lineno} in {ours[-1].name}\n"
        if line not in seen:
            seen.add(line)
            with open(found_path, "a") as result:
                result.write(line)

    sys.addaudithook(hook)
