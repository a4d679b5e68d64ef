"""Damaged logs: write-ahead logs that recovery retains because parts of them are lost.

GET    /v1/damaged-logs             those in the object store, and those on this agent's disk
DELETE /v1/damaged-logs/{session}   delete one; its lost records can't be searched for any more

A log is retained completely. Its intact records are in segments already.
"""

from typing import Any, Final

import msgspec
from starlette.responses import Response

from streamhouse.broker.admin.damaged_wals import DamagedWal
from streamhouse.broker.broker import Broker
from streamhouse.format.loss_report import LossReport
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.needs import needs
from streamhouse.wire.http.operations import Call, NoQuery, Operation, json_response

TAG: Final = "agents"


class PartitionLossView(msgspec.Struct, frozen=True, kw_only=True):
    """Offsets as [first, end): `gaps` are lost; `skipped` may have contained records, and the partition continues after
    them; `unpublished` are in the log but in no segment. `topic` is null if the topic was deleted."""

    topic: str | None
    topic_id: str
    partition: int
    epoch: int
    gaps: list[list[int]]
    skipped: list[list[int]]
    unpublished: list[list[int]]


class DamagedLogView(msgspec.Struct, frozen=True, kw_only=True):
    """`kind` is disk or object; `loss`: acknowledged records may be lost, not only a torn end. `losses` is the number
    of damaged places, `places` are the first of them."""

    session: str
    kind: str
    where: str
    files: int
    bytes: int
    loss: bool
    found_at_ms: int | None
    losses: int
    places: list[str]
    partitions: list[PartitionLossView]


class DamagedLogList(msgspec.Struct, frozen=True, kw_only=True):
    logs: list[DamagedLogView]


class Discarded(msgspec.Struct, frozen=True, kw_only=True):
    """The number of deleted files or objects."""

    files: int


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    async def list_logs(_: Call[NoQuery, None]) -> Response:
        topics = {str(topic.topic_id): topic.name for topic in await broker.catalog.all()}
        return json_response(DamagedLogList(logs=[_view(each, topics) for each in await broker.damaged_logs.list()]))

    async def discard(call: Call[NoQuery, None]) -> Response:
        return json_response(Discarded(files=await broker.damaged_logs.discard(call.path["session"])))

    return [
        Operation(
            method="GET",
            path="/v1/damaged-logs",
            handler=list_logs,
            needs=needs(AclOperation.DESCRIBE, ResourceType.CLUSTER),
            summary="List damaged write-ahead logs",
            about="Logs in the object store, and on this agent's disk.",
            tag=TAG,
            query=NoQuery,
            response=DamagedLogList,
        ),
        Operation(
            method="DELETE",
            path="/v1/damaged-logs/{session}",
            handler=discard,
            needs=needs(AclOperation.ALTER, ResourceType.CLUSTER),
            summary="Discard a damaged write-ahead log",
            about="Its records can't be recovered afterwards.",
            tag=TAG,
            query=NoQuery,
            response=Discarded,
            problems=(404, 422),
        ),
    ]


def _view(log: DamagedWal, topics: dict[str, str]) -> DamagedLogView:
    report = log.report
    return DamagedLogView(
        session=log.kept.session_id,
        kind=log.kept.kind,
        where=log.kept.where,
        files=log.kept.files,
        bytes=log.kept.size_bytes,
        loss=log.is_loss,
        found_at_ms=report.found_at_ms if report is not None else None,
        losses=report.losses if report is not None else 0,
        places=list(report.places) if report is not None else [],
        partitions=_partitions(report, topics) if report is not None else [],
    )


def _partitions(report: LossReport, topics: dict[str, str]) -> list[PartitionLossView]:
    return [
        PartitionLossView(
            topic=topics.get(each.topic_id),
            topic_id=each.topic_id,
            partition=each.partition,
            epoch=each.epoch,
            gaps=[list(span) for span in each.gaps],
            skipped=[list(span) for span in each.skipped],
            unpublished=[list(span) for span in each.unpublished],
        )
        for each in report.partitions
    ]
