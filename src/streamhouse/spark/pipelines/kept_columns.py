"""Kept columns: a pipeline reads the columns that it began with, also where they were inferred from records.

Data path   building -> **kept columns** -> a file beside the checkpoint
Owns        that file; which tables are in it
Leaves      inferring to `sql.catalogue`

Records say more every day. A number that becomes a fraction somewhere would be another type in a query's state, which
would not start again. So what was inferred for a revision holds for that revision; a changed pipeline looks anew.
"""

import json
from collections.abc import Iterable

from streamhouse.model.table import Column, Connector, Table
from streamhouse.spark.pipelines.checkpoints import Folder
from streamhouse.spark.sql.binding import Read
from streamhouse.spark.sql.catalogue import Catalogue, Extended


def with_kept(catalogue: Catalogue, folder: Folder, revision: int) -> Catalogue:
    """The catalogue, in which the tables of this revision are as they were."""
    text = folder.read(_name(revision))
    if text is None:
        return catalogue
    known = Extended(catalogue)
    for name, told in json.loads(text).items():
        columns = tuple(Column(name=column, type=kind) for column, kind in told["columns"])
        known.add(Table(name=name, connector=Connector.TOPIC, columns=columns, options=told["options"]))
    return known


def keep(catalogue: Catalogue, folder: Folder, revision: int, reads: Iterable[Read]) -> None:
    """Write down what was inferred, if anything was."""
    names = dict.fromkeys(r.name for r in reads if r.origin.startswith("inferred") or r.name in catalogue.kept)
    found = {name: table for name in names if (table := catalogue.find(name)) is not None}
    if not found:
        return
    told = {
        name: {
            "columns": [[column.name, column.type] for column in table.columns or ()],
            "options": dict(table.options),
        }
        for name, table in found.items()
    }
    text = json.dumps(told)
    if folder.read(_name(revision)) != text:
        folder.write(_name(revision), text)


def _name(revision: int) -> str:
    return f"columns-{revision}.json"
