"""AlterUserScramCredentials, API key 51, versions 0-0: change SCRAM credentials of users (KIP-554).

Behaviour   each user on its own, all of its changes or none: credentials are added, replaced or deleted; the client
            sends the salted password, the agent stores only the keys that SCRAM needs
            a user without a name, and invalid iterations or salts, are UNACCEPTABLE_CREDENTIAL; an unknown
            mechanism UNSUPPORTED_SASL_MECHANISM; deleting a missing credential RESOURCE_NOT_FOUND; a mechanism
            of a user twice DUPLICATE_RESOURCE
            a user without credentials is deleted, with its API keys and roles
Left out    nothing
Versions    v0 flexible
"""

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final

from streamhouse.errors import StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import needs
from streamhouse.model.scram import ScramMechanism
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
    ScramCredentialDeletion,
    ScramCredentialUpsertion,
)

MECHANISMS: Final = {mechanism.kafka_code: mechanism for mechanism in ScramMechanism}
Refusal = tuple[ErrorCode, str]


@dataclass(slots=True, kw_only=True)
class _Changes:
    """The requested changes of one user."""

    deletions: list[ScramCredentialDeletion] = field(default_factory=list)
    upsertions: list[ScramCredentialUpsertion] = field(default_factory=list)

    @property
    def mechanisms(self) -> Sequence[int]:
        return [each.mechanism for each in self.deletions] + [each.mechanism for each in self.upsertions]


@handles(AlterUserScramCredentialsRequest, (0, 0), needs=needs(Operation.ALTER, ResourceType.CLUSTER))
async def handle(context: Context, request: AlterUserScramCredentialsRequest) -> HandlerResult:
    users: dict[str, _Changes] = {}
    for deletion in request.deletions:
        users.setdefault(deletion.name, _Changes()).deletions.append(deletion)
    for upsertion in request.upsertions:
        users.setdefault(upsertion.name, _Changes()).upsertions.append(upsertion)
    return AlterUserScramCredentialsResponse(
        results=[await _alter(context, name, changes) async for name, changes in iterate_fairly(users.items())]
    )


async def _alter(context: Context, name: str, changes: _Changes) -> AlterUserScramCredentialsResult:
    try:
        context.check_cluster(Operation.ALTER)
        if (refusal := _refusal(name, changes)) is not None:
            code, text = refusal
            return AlterUserScramCredentialsResult(user=name, error_code=context.count_error(code), error_message=text)
        await context.broker.security.users.alter_credentials(
            name,
            upserts=[
                (MECHANISMS[each.mechanism], bytes(each.salt), bytes(each.salted_password), each.iterations)
                for each in changes.upsertions
            ],
            deletions=[MECHANISMS[each.mechanism] for each in changes.deletions],
        )
    except StreamhouseError as error:
        return AlterUserScramCredentialsResult(
            user=name, error_code=context.count_error(error), error_message=str(error)
        )
    return AlterUserScramCredentialsResult(user=name, error_message=None)


def _refusal(name: str, changes: _Changes) -> Refusal | None:
    """Why the changes of a user make no sense, whatever is stored."""
    if not name:
        return ErrorCode.UNACCEPTABLE_CREDENTIAL, "user has no name"
    if any(count > 1 for count in Counter(changes.mechanisms).values()):
        return ErrorCode.DUPLICATE_RESOURCE, "a mechanism of the user is named twice in the request"
    unknown = [mechanism for mechanism in changes.mechanisms if mechanism not in MECHANISMS]
    if unknown:
        return ErrorCode.UNSUPPORTED_SASL_MECHANISM, f"unknown SCRAM mechanism; mechanism={unknown[0]}"
    return None
