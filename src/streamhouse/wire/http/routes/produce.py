"""Publishing records.

POST /v1/topics/{topic}/records                          {"records": [{"key": "a", "value": {"n": 1}}], "acks": "wal"}
     application/x-ndjson                                a record object in each line, for as long as the client sends
     text/plain, application/octet-stream                the body is one value; ?key=…&partition=…
POST /v1/topics/{topic}/partitions/{partition}/batches   whole Kafka record batches, one after the other

One call is one `broker.records.publish`. An invalid body publishes nothing. Otherwise records succeed or fail
individually: the status is 200 if at least one was published, and the failed ones have an `error`. If all failed, the
response is the first error.
"""

from collections.abc import Callable, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.broker.forwarding.publish import check_batches
from streamhouse.errors import InvalidRecord, RegistryRefusal, StreamhouseError, UnknownSchema
from streamhouse.format.batch import iter_batches
from streamhouse.limits import LargeWork
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.names import TopicPartition
from streamhouse.model.needs import needs
from streamhouse.model.record import Acks, NewRecord, Receipt
from streamhouse.model.schema import Subject
from streamhouse.wire.authorization import RequestAccess
from streamhouse.wire.http.endpoint import INLINE_BYTES
from streamhouse.wire.http.errors import (
    MAX_FIELD_ERRORS,
    FieldError,
    Unprocessable,
    headers_of_error,
    problem_of,
    problem_response,
)
from streamhouse.wire.http.operations import (
    BATCHES,
    BYTES,
    JSON,
    NDJSON,
    TEXT,
    Call,
    Header,
    Media,
    Operation,
    json_response,
)
from streamhouse.wire.http.records.formats import Registry, Writer
from streamhouse.wire.http.records.publish_body import (
    INLINE_ELEMENTS,
    PARTS,
    Defaults,
    Part,
    SchemaChoice,
    defaults_of,
    encode_records,
    schema_choice,
)
from streamhouse.wire.http.records.schema_encoding import SchemaEncoding
from streamhouse.wire.http.records.types import Publication, PublicationQuery, Published, PublishedRecords, Uploaded
from streamhouse.wire.http.records.upload import Upload
from streamhouse.wire.http.request_body import RequestBodies
from streamhouse.wire.topic_creation import check_creation

TAG: Final = "records"
CREATION_ABOUT: Final = "create, on topic or cluster, for a topic that isn't there"
IDEMPOTENCY_KEY: Final = Header(
    name="Idempotency-Key",
    about="a retry with the same key and the same records stores nothing twice; with other records it is refused",
    max_chars=255,
)

Answers = Sequence[Receipt | StreamhouseError]


class BatchesQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    acks: Annotated[Acks, Meta(description="what to wait for: buffered, wal or stored")] = Acks.WAL


class PublishedBatches(msgspec.Struct, frozen=True, kw_only=True):
    """One entry for each batch, in order, with the offset of its first record."""

    batches: list[Published]


class PublishingCalls:
    """Operations that publish records and batches."""

    def __init__(
        self,
        broker: Broker,
        bodies: RequestBodies,
        registry: Registry,
        encoding: SchemaEncoding,
        large_bodies: LargeWork,
    ) -> None:
        self._broker = broker
        self._encoding = encoding
        self._large_bodies = large_bodies
        self._bodies = bodies
        self._registry = registry
        self._settings = broker.settings.http

    async def _publish(self, call: Call[Any, Any], records: Sequence[NewRecord], acks: Acks) -> Response:
        await check_creation(self._broker, call.access, call.topic)
        responses = await self._broker.records.publish(
            call.topic,
            records,
            acks=acks,
            idempotency_key=call.header(IDEMPOTENCY_KEY.name),
            timeout_s=self._settings.publish_timeout_s,
        )
        return await self._respond("records", responses, lambda: PublishedRecords(records=published(responses)))

    async def _respond(self, what: str, responses: Answers, make: Callable[[], msgspec.Struct]) -> Response:
        def respond() -> Response:
            return all_failed(responses, what) or json_response(make())

        return await self._large_bodies.run(respond, is_large=len(responses) > INLINE_ELEMENTS)

    async def publish_records(self, call: Call[PublicationQuery, Publication]) -> Response:
        if call.media_type == JSON:
            defaults = await with_writers(self._registry, call.access, call.query, call.body)
            records = await encode_records(call.body.records, defaults, self._encoding, self._large_bodies)
            return await self._publish(call, records, defaults.acks)
        if call.media_type == NDJSON:
            return await self._upload(call, await with_writers(self._registry, call.access, call.query))
        check_plain(call.query)
        defaults = defaults_of(call.query)
        value = await self._bodies.read(call.request)
        record = NewRecord(value, defaults.key, (), defaults.timestamp_ms, defaults.partition)
        return await self._publish(call, [record], defaults.acks)

    async def _upload(self, call: Call[PublicationQuery, Publication], defaults: Defaults) -> Response:
        await check_creation(self._broker, call.access, call.topic)
        await self._broker.topic(call.topic, create=True)  # check before a long upload
        running = Upload(
            self._broker.records,
            self._settings,
            topic=call.topic,
            defaults=defaults,
            encoding=self._encoding,
            large_bodies=self._large_bodies,
            idempotency_key=call.header(IDEMPOTENCY_KEY.name),
        )
        summary = await running.run(self._bodies.pieces(call.request))
        if summary.records or running.first_error is None:
            return json_response(summary)
        field_errors = [FieldError(path="$", reason=f"line {each.line}: {each.reason}") for each in summary.errors]
        problem = msgspec.structs.replace(problem_of(running.first_error), errors=field_errors)
        return problem_response(problem, headers_of_error(running.first_error))

    async def publish_batches(self, call: Call[BatchesQuery, None]) -> Response:
        body = memoryview(await self._bodies.read(call.request))
        spans = await self._large_bodies.run(lambda: iter_batches(body), is_large=len(body) > INLINE_BYTES)
        if not spans:
            raise InvalidRecord("no record batch in the body")
        check_batches(len(spans))
        batches = [body[span.position : span.position + span.size_bytes] for span in spans]
        await check_creation(self._broker, call.access, call.topic)
        responses = await self._broker.records.publish_batches(
            TopicPartition(call.topic, call.partition),
            batches,
            acks=call.query.acks,
            timeout_s=self._settings.publish_timeout_s,
        )
        return await self._respond("batches", responses, lambda: PublishedBatches(batches=published(responses)))


def operations(
    broker: Broker, bodies: RequestBodies, registry: Registry, encoding: SchemaEncoding, large_bodies: LargeWork
) -> list[Operation[Any, Any]]:
    calls = PublishingCalls(broker, bodies, registry, encoding, large_bodies)
    return [
        Operation(
            method="POST",
            path="/v1/topics/{topic}/records",
            handler=calls.publish_records,
            needs=needs(
                AclOperation.WRITE,
                ResourceType.TOPIC,
                "topic",
                about=f"read on a subject that is named, or that has the schema; {CREATION_ABOUT}",
            ),
            summary="Publish records",
            about="JSON carries many records, NDJSON as many as there are, text and bytes one. The query says what "
            "holds for records that don't say otherwise. An NDJSON upload is answered with a summary in its end.",
            tag=TAG,
            query=PublicationQuery,
            body=Publication,
            other_bodies=[
                Media(type=NDJSON, about="a record in each line", schema={"type": "string", "format": "binary"}),
                Media(type=TEXT, about="one value"),
                Media(type=BYTES, about="one value", schema={"type": "string", "format": "binary"}),
            ],
            headers=[IDEMPOTENCY_KEY],
            response=PublishedRecords,
            also_response=Uploaded,
            problems=(404, 409, 413),
        ),
        Operation(
            method="POST",
            path="/v1/topics/{topic}/partitions/{partition}/batches",
            handler=calls.publish_batches,
            needs=needs(
                AclOperation.WRITE,
                ResourceType.TOPIC,
                "topic",
                about=CREATION_ABOUT,
            ),
            summary="Publish whole Kafka record batches",
            about="Batches of format 2, one after the other, as producers send them: compressed or not.",
            tag=TAG,
            query=BatchesQuery,
            other_bodies=[Media(type=BATCHES, about="record batches", schema={"type": "string", "format": "binary"})],
            response=PublishedBatches,
            problems=(404, 413),
        ),
    ]


async def with_writers(
    registry: Registry, access: RequestAccess, query: PublicationQuery, body: Publication | None = None
) -> Defaults:
    """The defaults for the records of a body, with schemas looked up."""
    return defaults_of(
        query,
        body,
        key_writer=await _writer(registry, access, schema_choice("key", query, body), part="key"),
        value_writer=await _writer(registry, access, schema_choice("value", query, body), part="value"),
    )


async def _writer(registry: Registry, access: RequestAccess, way: SchemaChoice, *, part: Part) -> Writer | None:
    schema_id, subject, _ = way
    named = "schema_id" if subject is None else "subject"
    try:
        if subject is not None:
            access.require(AclOperation.READ, ResourceType.SUBJECT, str(Subject.parse(subject)))
            schema_id = await registry.newest_id(subject)
        elif schema_id is not None:
            await _require_schema(registry, access, schema_id)
        return None if schema_id is None else Writer(schema_id, await registry.schema(schema_id))
    except RegistryRefusal as error:
        raise Unprocessable(
            str(error), field_errors=[FieldError(path=f"$.{part}_{named}", reason=str(error))]
        ) from None


async def _require_schema(registry: Registry, access: RequestAccess, schema_id: int) -> None:
    """Raise `UnknownSchema` unless the caller may read a subject that has this schema."""
    if access.is_unrestricted:
        return
    versions = await registry.versions_of(schema_id, with_deleted=True)
    names = {str(each.subject) for each in versions}
    readable = [name for name in sorted(names) if access.allows(AclOperation.READ, ResourceType.SUBJECT, name)]
    if not readable:
        raise UnknownSchema(schema_id=schema_id)
    access.require(AclOperation.READ, ResourceType.SUBJECT, readable[0])


def check_plain(query: PublicationQuery) -> None:
    """Raise if a schema is set for a body that is stored unchanged."""
    for part in PARTS:
        way = schema_choice(part, query, None)
        if way.schema_id is not None or way.subject is not None:
            reason = f"a body of this media type is stored unchanged; schemas are for {JSON} and {NDJSON}"
            named = "schema_id" if way.subject is None else "subject"
            raise Unprocessable(reason, field_errors=[FieldError(path=f"$.{part}_{named}", reason=reason)])


def published(responses: Answers) -> list[Published]:
    return [
        Published(partition=response.partition, offset=response.offset, timestamp_ms=response.timestamp_ms)
        if isinstance(response, Receipt)
        else Published(error=problem_of(response))
        for response in responses
    ]


def all_failed(responses: Answers, what: str) -> Response | None:
    """The first error as the response, with the errors of all records; None if any record was published."""
    failed = [response for response in responses if isinstance(response, StreamhouseError)]
    if len(failed) < len(responses):
        return None
    field_errors = [
        FieldError(path=f"$.{what}[{number}]", reason=str(error))
        for number, error in enumerate(failed[:MAX_FIELD_ERRORS])
    ]
    problem = msgspec.structs.replace(problem_of(failed[0]), errors=field_errors)
    return problem_response(problem, headers_of_error(failed[0]))
