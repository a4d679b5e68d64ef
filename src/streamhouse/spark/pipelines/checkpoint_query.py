"""Checkpoint query: which query a checkpoint belongs to, in a file beside it.

Data path   building -> **check_query** -> a file in the checkpoint's folder
Owns        that file; that no query goes on with what another one has kept
Leaves      which changes of a query its checkpoint survives to `model.pipeline.loses_place`

Agents reject a changed definition if its state signature shows that it can't resume. Here the query is checked once
more, with the frame that is going to run: it may not have been checked before, as with Python or `apply --no-validate`.
"""

import hashlib
import json
from dataclasses import asdict
from typing import Final

import msgspec

from streamhouse.errors import Misconfigured
from streamhouse.model.pipeline import Shape, loses_place, moved_tables
from streamhouse.spark.runtime.checkpoint import OFFSETS
from streamhouse.spark.runtime.checkpoint_folder import Folder

FILE: Final = "query.json"
FIRST_BATCH: Final = f"{OFFSETS}/0"


def check_query(folder: Folder, *, name: str, text: str, shape: Shape, has_run: bool) -> None:
    """Raise `Misconfigured` where the checkpoint is another query's; write down whose it is.

    `text` is without what doesn't matter to its meaning. A checkpoint of an earlier version of StreamHouse doesn't say
    whose it is, and is taken for this query's. So is one in which no micro-batch was ever begun.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()
    kept = folder.read(FILE)
    if kept is not None and (has_run or folder.read(FIRST_BATCH) is not None):
        stored = json.loads(kept)
        old = msgspec.convert(stored["shape"], Shape)
        lost = moved_tables(old, shape) if stored["text"] == digest else loses_place(old, shape)
        if lost is not None:
            raise Misconfigured(
                f"its checkpoint is another query's; why={lost} do=apply the earlier text again, or begin anew:"
                f" streamhouse pipelines restart {name} --from earliest"
            )
    now = json.dumps({"text": digest, "shape": asdict(shape)})
    if now != kept:
        folder.write(FILE, now)
