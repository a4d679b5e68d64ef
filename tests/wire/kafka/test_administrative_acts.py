"""What became of administrative acts, read off responses of any size."""

import asyncio

from streamhouse.broker.security.audit import Acts
from streamhouse.model.access import CLUSTER_NAME, Principal
from streamhouse.model.audit import AuditEvent, AuditKind, Outcome
from streamhouse.wire.kafka.administrative_acts import end_acts
from streamhouse.wire.kafka.messages.delete_groups import DeletableGroupResult, DeleteGroupsResponse
from streamhouse.wire.kafka.messages.end_txn import EndTxnResponse
from streamhouse.wire.kafka.schema import Response

DENIED = 30


async def outcomes(response: Response | None, *names: str) -> dict[str, Outcome]:
    recorded = list[AuditEvent]()
    acts = Acts(recorded.append)
    for name in names:
        acts.events[event(name)] = name
    await end_acts(acts, response)
    return {each.resource: each.outcome for each in recorded}


def event(name: str) -> AuditEvent:
    return AuditEvent(
        kind=AuditKind.ADMINISTRATION,
        outcome=Outcome.ALLOWED,
        principal=str(Principal("User", "alice")),
        operation="delete",
        resource=name,
    )


def results(**codes: int) -> DeleteGroupsResponse:
    return DeleteGroupsResponse(
        results=[DeletableGroupResult(group_id=name, error_code=code) for name, code in codes.items()]
    )


async def test_an_error_beside_a_name_is_the_outcome_of_that_act_alone() -> None:
    assert await outcomes(results(a=DENIED, b=0), "a", "b") == {"a": Outcome.FAILED, "b": Outcome.SUCCEEDED}


async def test_an_error_that_names_nothing_concerns_all_acts() -> None:
    assert await outcomes(EndTxnResponse(error_code=DENIED), "a", "b") == {"a": Outcome.FAILED, "b": Outcome.FAILED}


async def test_an_act_on_the_cluster_fails_with_any_error() -> None:
    assert await outcomes(results(a=DENIED), CLUSTER_NAME) == {CLUSTER_NAME: Outcome.FAILED}
    assert await outcomes(results(a=0), CLUSTER_NAME) == {CLUSTER_NAME: Outcome.SUCCEEDED}


async def test_others_have_their_turn_while_a_long_response_is_read() -> None:
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    running = asyncio.create_task(others())
    response = results(**{f"group-{number}": 0 for number in range(10_000)})
    await outcomes(response, "group-1")
    running.cancel()
    assert turns >= 20


async def test_a_response_is_not_read_where_nothing_was_administered() -> None:
    class Unread(DeleteGroupsResponse):
        def __getattribute__(self, name: str) -> object:
            raise AssertionError(f"{name} was read")

    await outcomes(Unread())
