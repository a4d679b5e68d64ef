"""Views: how a request wants records to be written.

Data path   stored records -> **views** -> JSON of pages and streams
Owns        the formats of one request
Leaves      bytes to `payloads`, schemas to `schemas`
"""

from collections.abc import Sequence
from typing import Final

from streamhouse.model.record import StoredRecord
from streamhouse.wire.http.records.encoding import Deadline, Encoding
from streamhouse.wire.http.records.payloads import view_of
from streamhouse.wire.http.records.schemas import Reader, Registry
from streamhouse.wire.http.records.shapes import Format, ReadFormat, RecordView

SCHEMA: Final = "schema"


class Viewer:
    def __init__(
        self,
        registry: Registry,
        encoding: Encoding,
        *,
        key_format: ReadFormat,
        value_format: ReadFormat,
    ) -> None:
        self._key_format = _plain(key_format, "text")
        self._value_format = _plain(value_format, "json")
        self._registry = registry
        self._encoding = encoding
        self._key_schema, self._value_schema = key_format == SCHEMA, value_format == SCHEMA

    async def views(self, partition: int, records: Sequence[StoredRecord]) -> list[RecordView]:
        if self._key_schema or self._value_schema:
            reader = self._reader()
            await reader.learn(records)
            return await self._encoding.run(lambda deadline: _views(reader, partition, records, deadline))
        return [
            view_of(partition, record, key_format=self._key_format, value_format=self._value_format)
            for record in records
        ]

    def _reader(self) -> Reader:
        """A new one for each piece: a stream may go on for months, and ids that nobody knows become known."""
        return Reader(
            self._registry,
            key=self._key_schema,
            value=self._value_schema,
            key_format=self._key_format,
            value_format=self._value_format,
        )


def _views(reader: Reader, partition: int, records: Sequence[StoredRecord], deadline: Deadline) -> list[RecordView]:
    views: list[RecordView] = []
    for record in records:
        deadline.check()
        views.append(reader.view_of(partition, record))
    return views


def _plain(form: ReadFormat, instead: Format) -> Format:
    """What a part is written in where no schema is known."""
    return instead if form == SCHEMA else form
