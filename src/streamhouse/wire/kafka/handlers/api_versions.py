"""ApiVersions, API key 18, versions 0-4: the served APIs and their versions.

Behaviour   the first request of every client; needs no other one before it
            a version that isn't served is answered in version 0 with UNSUPPORTED_VERSION and the same list, so that the
            client can retry (KIP-511)
            names of client software that Kafka rejects get INVALID_REQUEST; others are stored for Metadata
            one feature is offered, transaction.version, and it is at 2: clients that know it give each transaction an
            epoch of its own, and leave it to Produce and TxnOffsetCommit to begin transactions (KIP-890)
            client metrics (KIP-714) are only offered where kafka.client_metrics asks for some
Left out    features that could be turned off
            v5, by which clients say which broker they expect (KIP-1242): for a while after an agent's death its id
            leads to a living one
Versions    v3 flexible, client software name and version, features · v4 features may begin at 0
"""

import re
from typing import Final

from streamhouse.model.needs import OPEN
from streamhouse.wire.kafka.api_registry import APIS, handles
from streamhouse.wire.kafka.client_software import MAX_CHARS, ClientSoftware
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.api_versions import (
    ApiVersion,
    ApiVersionsRequest,
    ApiVersionsResponse,
    FinalizedFeatureKey,
    SupportedFeatureKey,
)

NAMED_SINCE: Final = 3
ZERO_SINCE: Final = 4
"""Before this version, clients fail on a feature whose versions begin at 0; Kafka sends 1."""
TRANSACTIONS: Final = "transaction.version"
TRANSACTIONS_LEVEL: Final = 2
FEATURES_EPOCH: Final = 0
TELEMETRY: Final = frozenset({71, 72})
_LEGAL: Final = re.compile(r"[a-zA-Z0-9](?:[a-zA-Z0-9\-.]*[a-zA-Z0-9])?")


@handles(ApiVersionsRequest, (0, 4), needs=OPEN)
async def handle(context: Context, request: ApiVersionsRequest) -> HandlerResult:
    if not APIS[request.api_key].handles(context.version):
        return ApiVersionsResponse(
            error_code=context.count_error(ErrorCode.UNSUPPORTED_VERSION), api_keys=served_versions(context)
        )
    if context.version >= NAMED_SINCE:
        if not _is_named(request):
            return ApiVersionsResponse(error_code=context.count_error(ErrorCode.INVALID_REQUEST))
        name, version = request.client_software_name[:MAX_CHARS], request.client_software_version[:MAX_CHARS]
        context.set_software(ClientSoftware(name, version))
    return ApiVersionsResponse(
        api_keys=served_versions(context),
        supported_features=[
            SupportedFeatureKey(
                name=TRANSACTIONS,
                min_version=0 if context.version >= ZERO_SINCE else 1,
                max_version=TRANSACTIONS_LEVEL,
            )
        ],
        finalized_features_epoch=FEATURES_EPOCH,
        finalized_features=[
            FinalizedFeatureKey(
                name=TRANSACTIONS, max_version_level=TRANSACTIONS_LEVEL, min_version_level=TRANSACTIONS_LEVEL
            )
        ],
    )


def served_versions(context: Context) -> list[ApiVersion]:
    """Without those of client metrics if no metrics are subscribed: clients would poll for a subscription."""
    hidden = frozenset() if context.metrics.clients.is_on else TELEMETRY
    return [
        ApiVersion(api_key=key, min_version=api.advertised, max_version=api.last)
        for key, api in sorted(APIS.items())
        if key not in hidden
    ]


def _is_named(request: ApiVersionsRequest) -> bool:
    names = (request.client_software_name, request.client_software_version)
    return all(_LEGAL.fullmatch(name) for name in names)
