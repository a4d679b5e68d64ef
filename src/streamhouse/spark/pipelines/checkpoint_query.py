"""Checkpoint query: the query that a checkpoint belongs to, in a file beside it.

Data path   query_builder -> **check_query** -> a file in the checkpoint's folder
Owns        that file; that no query resumes from another query's checkpoint
Leaves      the changes after which a query can't resume to `model.pipeline.resume_conflict`

Agents reject a changed definition if its state signature shows that it can't resume. Here the query is checked again,
with the frame that is going to run: it may not have been checked before, as with Python or `apply --no-validate`.
"""

import hashlib
import json
from dataclasses import asdict
from typing import Final

import msgspec

from streamhouse.errors import Misconfigured
from streamhouse.model.pipeline import Shape, moved_tables, resume_conflict
from streamhouse.spark.runtime.checkpoint import OFFSETS
from streamhouse.spark.runtime.checkpoint_folder import Folder

FILE: Final = "query.json"
FIRST_BATCH: Final = f"{OFFSETS}/0"


def check_query(folder: Folder, *, name: str, text: str, shape: Shape, has_run: bool) -> None:
    """Raise `Misconfigured` if the checkpoint belongs to another query; else store that it belongs to this one.

    `text` is without comments and layout. A checkpoint of an earlier version of StreamHouse has no such file, and is
    taken for this query's. So is one without any micro-batch.
    """
    digest = hashlib.sha256(text.encode()).hexdigest()
    kept = folder.read(FILE)
    if kept is not None and (has_run or folder.read(FIRST_BATCH) is not None):
        stored = json.loads(kept)
        old = msgspec.convert(stored["shape"], Shape)
        lost = moved_tables(old, shape) if stored["text"] == digest else resume_conflict(old, shape)
        if lost is not None:
            raise Misconfigured(
                f"its checkpoint is another query's; why={lost} do=apply the earlier text again, or start over:"
                f" streamhouse pipelines restart {name} --from earliest"
            )
    now = json.dumps({"text": digest, "shape": asdict(shape)})
    if now != kept:
        folder.write(FILE, now)
