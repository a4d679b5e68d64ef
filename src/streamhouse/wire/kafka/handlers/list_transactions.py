"""ListTransactions, API key 66, versions 0-2: the transactional ids that this agent coordinates.

Behaviour   all of them, or those in given states, of given producer ids, whose transaction has been under way for
            longer than a duration (v1), whose id matches a regular expression as a whole (v2)
            an unknown state is returned in `unknown_state_filters`; without a known one nothing matches
            at most `transactions.max_listed`; an invalid expression is INVALID_REGULAR_EXPRESSION
            each agent returns its own, so that administrators who ask all agents get each id once
Left out    nothing
Versions    v0 flexible · v1 duration · v2 pattern
"""

from collections.abc import Callable
from typing import Final

from streamhouse.errors import StreamhouseError
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import needs
from streamhouse.model.transaction import TransactionState as State
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.list_transactions import (
    ListTransactionsRequest,
    ListTransactionsResponse,
    TransactionState,
)
from streamhouse.wire.kafka.transaction_errors import NEVER, VersionedCodes

CODES: Final = VersionedCodes(fenced_since=NEVER, abortable_since=NEVER)
MAX_PATTERN_CHARS: Final = 1000
MAX_PATTERN_BYTES: Final = 1 << 20


@handles(ListTransactionsRequest, (0, 2), needs=needs(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID))
async def handle(context: Context, request: ListTransactionsRequest) -> HandlerResult:
    known = {state.value: state for state in State}
    states = {known[name] for name in request.state_filters if name in known}
    unknown = [name for name in dict.fromkeys(request.state_filters) if name not in known]
    try:
        matches = _matcher(request.transactional_id_pattern or "")
    except ValueError:
        return ListTransactionsResponse(error_code=context.count_error(ErrorCode.INVALID_REGULAR_EXPRESSION))
    if unknown and not states:
        return ListTransactionsResponse(unknown_state_filters=unknown)
    try:
        result = await context.broker.transactions.list(
            states=states, producer_ids=set(request.producer_id_filters), min_duration_ms=request.duration_filter
        )
    except StreamhouseError as error:
        return ListTransactionsResponse(error_code=context.count_error(CODES.code(context.version, error)))
    return ListTransactionsResponse(
        unknown_state_filters=unknown,
        transaction_states=[
            TransactionState(
                transactional_id=each.transactional_id,
                producer_id=each.producer.producer_id,
                transaction_state=each.state,
            )
            for each in result
            if context.allows(Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID, each.transactional_id)
            and matches(context.shown(each.transactional_id))
        ],
    )


def _matcher(pattern: str) -> Callable[[str], bool]:
    """Compile the pattern with RE2, as Kafka does: its time is linear in the text, so no pattern can block an agent."""
    if not pattern:
        return lambda _: True
    if len(pattern) > MAX_PATTERN_CHARS:
        raise ValueError(f"pattern is too long; characters={len(pattern)} limit={MAX_PATTERN_CHARS}")
    import jsonschema_rs  # 3 MB that few agents need

    bounded = jsonschema_rs.RegexOptions(size_limit=MAX_PATTERN_BYTES, dfa_size_limit=MAX_PATTERN_BYTES)
    whole = {"pattern": f"^(?:{pattern})$"}
    return jsonschema_rs.Draft7Validator(whole, pattern_options=bounded).is_valid
