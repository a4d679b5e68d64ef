"""Connectors: tables as data frames, and data frames into tables; one module for each kind of place.

Data path   sql.binding, pipelines -> **connectors** -> topics, files, PostgreSQL, views
Owns        what a connector is (`base`), which there are (`find`)
Leaves      names and columns to `sql.catalogue`, when to read and write to whoever asks

A connector is a module with the three functions of `base.TableConnector`. It is loaded when it is needed first: whoever
reads topics waits for no driver of a database.
"""

from importlib import import_module
from typing import TYPE_CHECKING, cast

from streamhouse.model.table import Connector

if TYPE_CHECKING:
    from streamhouse.spark.connectors.base import TableConnector


def find(connector: Connector) -> "TableConnector":
    return cast("TableConnector", import_module(f"{__name__}.{connector.value}"))
