"""Views: how a request wants records to be written.

Data path   stored records -> **views** -> JSON of pages and streams
Owns        the formats of one request
Leaves      bytes to `payloads`, schemas to `schemas`
"""

from collections.abc import Sequence
from typing import Final

from streamhouse.model.record import StoredRecord

from .payloads import view_of
from .schemas import Reader, Registry
from .shapes import Format, ReadFormat, RecordView

SCHEMA: Final = "schema"


class Viewer:
    def __init__(
        self,
        registry: Registry,
        *,
        key_format: ReadFormat,
        value_format: ReadFormat,
    ) -> None:
        self._key_format = _plain(key_format, "text")
        self._value_format = _plain(value_format, "json")
        self._reader: Reader | None = None
        if SCHEMA in (value_format, key_format):
            self._reader = Reader(
                registry,
                key=key_format == SCHEMA,
                value=value_format == SCHEMA,
                key_format=self._key_format,
                value_format=self._value_format,
            )

    async def views(self, partition: int, records: Sequence[StoredRecord]) -> list[RecordView]:
        if self._reader is not None:
            return [await self._reader.view_of(partition, record) for record in records]
        return [
            view_of(partition, record, key_format=self._key_format, value_format=self._value_format)
            for record in records
        ]


def _plain(form: ReadFormat, instead: Format) -> Format:
    """What a part is written in where no schema is known."""
    return instead if form == SCHEMA else form
