"""Schemas: values that are written with a schema of the registry, behind a zero byte and its id.

Data path   JSON values -> **schemas** -> payloads of NewRecords; StoredRecords -> **schemas** -> JSON values
Owns        which part of a record is read or written with which schema
Leaves      schemas to `broker.schemas`, payloads and the ids in front of them to `schemas`
"""

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import NamedTuple, Protocol

import msgspec
from msgspec import UNSET, Raw

from streamhouse.errors import InvalidRecordValue, RegistryRefusal
from streamhouse.format.schema_id import PREFIX_BYTES, prefix_of, schema_id_of
from streamhouse.model.record import StoredRecord
from streamhouse.schemas.base import ParsedSchema
from streamhouse.wire.http.records.encoder_process import why
from streamhouse.wire.http.records.payloads import NULL, view_of
from streamhouse.wire.http.records.shapes import Format, RecordView


class Registry(Protocol):
    """What is asked of `broker.schemas`."""

    async def schema(self, schema_id: int) -> ParsedSchema:
        """Raises `UnknownSchema`."""
        ...

    async def newest_id(self, subject: str) -> int:
        """The id of a subject's newest version; raises `UnknownSubject`."""
        ...


class Writer(NamedTuple):
    """Writes values with one schema. `encoded` has what some values are written as, or why they can't be: those that
    take long were written before."""

    schema_id: int
    schema: ParsedSchema
    encoded: Mapping[bytes, bytes | str] = MappingProxyType({})

    def bytes_of(self, raw: Raw) -> bytes | None:
        """Raises `ValueError` where the value doesn't fit, with the place inside it."""
        text = bytes(raw)
        if not text or text == NULL:
            return None
        if (known := self.encoded.get(text)) is not None:
            if isinstance(known, str):
                raise ValueError(known)
            return prefix_of(self.schema_id) + known
        try:
            payload = self.schema.encode(msgspec.json.decode(text))
        except InvalidRecordValue as error:
            raise ValueError(why(error)) from None
        return prefix_of(self.schema_id) + payload


class Reader:
    """Reads records whose parts may carry schema ids; each schema is asked for once. Raises what may go well later."""

    def __init__(self, registry: Registry, *, key: bool, value: bool, key_format: Format, value_format: Format) -> None:
        self._registry = registry
        self._key, self._value = key, value
        self._key_format, self._value_format = key_format, value_format
        self._known: dict[int, ParsedSchema | None] = {}

    async def learn(self, records: Sequence[StoredRecord]) -> None:
        """Ask for the schemas of these records."""
        for record in records:
            for wanted, data in ((self._key, record.key), (self._value, record.value)):
                if wanted and (schema_id := schema_id_of(data)) is not None and schema_id not in self._known:
                    self._known[schema_id] = await self._find(schema_id)

    def view_of(self, partition: int, record: StoredRecord) -> RecordView:
        """The record with its parts decoded, by schemas that were learnt; a part that can't be is told as JSON, text or
        base64, whichever fits."""
        view = view_of(partition, record, key_format=self._key_format, value_format=self._value_format)
        if self._key and (found := self._decoded(record.key)) is not None:
            view.key, view.key_schema_id = found
            view.key_format = UNSET
        if self._value and (found := self._decoded(record.value)) is not None:
            view.value, view.value_schema_id = found
            view.value_format = UNSET
        return view

    def _decoded(self, data: bytes | None) -> tuple[object, int] | None:
        schema_id = schema_id_of(data)
        if data is None or schema_id is None or (schema := self._known.get(schema_id)) is None:
            return None
        try:
            return schema.decode(memoryview(data)[PREFIX_BYTES:]), schema_id
        except InvalidRecordValue:
            return None

    async def _find(self, schema_id: int) -> ParsedSchema | None:
        try:
            return await self._registry.schema(schema_id)
        except RegistryRefusal:
            return None
