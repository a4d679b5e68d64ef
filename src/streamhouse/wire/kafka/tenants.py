"""Tenants: requests of a tenant's clients and their responses, with the names that things have inside the cluster.

Data path   codec -> **tenants** (`enter`) -> handler -> **tenants** (`leave`) -> codec
Owns        which fields of which messages name something that a tenant has; the APIs that tenants may not use
Leaves      the form of names to `model.tenant`; rights, and what is in a tenant, to `broker.security`

Invariants  every field that is a text is classified here, or the message can't be translated: a new one is seen
            a response shows nothing of another tenant, whatever a handler returns: what it names is left out

Handlers translate three things themselves, because it takes more than one field: access rules, quotas, and topic ids.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

from streamhouse.model.tenant import qualified, unqualified, without_tenant
from streamhouse.wire.kafka.resources import ConfigResourceType
from streamhouse.wire.kafka.schema import Field, Message, Response, fields_of


class Kind(Enum):
    """The kind of a text field in a message."""

    NAME = auto()
    """The name of something that a tenant has. An empty one names nothing."""
    GROUP = auto()
    """The same, where an empty name is one: offsets may be committed under it."""
    RESOURCE = auto()
    """The name of what `resource_type` beside it says: topics and groups are a tenant's."""
    TEXT = auto()
    """A text for people, which may have names in it."""
    HIDDEN = auto()
    """About the cluster's insides: tenants get a constant."""
    PLAIN = auto()
    """Nothing of the above."""


HIDDEN_TEXT: Final = "streamhouse"

REFUSED: Final[Mapping[int, str]] = {
    27: "markers are written by agents",
    34: "records are on no broker's disk",
    43: "leaders are the cluster's",
    45: "leaders are the cluster's",
}
"""The APIs that no right lets a tenant use, and why."""

_BY_NAME: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(
        (
            "topic",
            "topic_name",
            "topic_names",
            "subscribed_topic_names",
            "transactional_id",
            "transactional_ids",
            "v3_and_below_transactional_id",
            "principal_name",
            "owner_principal_name",
            "token_requester_principal_name",
            "user",
        ),
        Kind.NAME,
    ),
    **dict.fromkeys(("group_id", "group_ids", "groups", "groups_names", "key", "coordinator_keys"), Kind.GROUP),
    **dict.fromkeys(("error_message", "batch_index_error_message"), Kind.TEXT),
    "log_dir": Kind.HIDDEN,
    "resource_name": Kind.RESOURCE,
    **dict.fromkeys(
        (
            "assignor_name",
            "client_host",
            "client_id",
            "client_software_name",
            "client_software_version",
            "cluster_id",
            "committed_metadata",
            "configuration_keys",
            "documentation",
            "entity_name",  # of quotas, which handlers translate
            "entity_type",
            "group_instance_id",
            "group_state",
            "group_type",
            "host",
            "host_filter",
            "instance_id",
            "leader",  # of a group: a member's id
            "match",  # of quotas
            "mechanism",
            "mechanisms",
            "member_id",
            "metadata",
            "owner_principal_type",
            "path",
            "principal",  # of access rules, which handlers translate
            "principal_filter",
            "principal_type",
            "protocol_data",
            "protocol_name",
            "protocol_type",
            "rack",
            "rack_id",
            "reason",
            "requested_metrics",
            "resource_name_filter",  # of access rules
            "state_filters",
            "states_filter",
            "subscribed_topic_regex",
            "token_id",
            "token_requester_principal_type",
            "transaction_state",
            "transactional_id_pattern",  # compared with names as the client knows them
            "types_filter",
            "unknown_state_filters",
            "value",
        ),
        Kind.PLAIN,
    ),
}
"""The fields whose name tells what they are."""

_NAMES: Final = frozenset(
    {
        "AddPartitionsToTxnTopic",
        "AddPartitionsToTxnTopicResult",
        "AlterReplicaLogDirTopic",
        "CreatableTopic",
        "CreatableTopicResult",
        "CreatePartitionsTopic",
        "CreatePartitionsTopicResult",
        "DeletableTopicResult",
        "DeleteRecordsTopic",
        "DeleteRecordsTopicResult",
        "DeleteTopicState",
        "DescribeLogDirsTopic",
        "DescribeTopicPartitionsResponseTopic",
        "ListOffsetsTopic",
        "ListOffsetsTopicResponse",
        "ListPartitionReassignmentsTopics",
        "MetadataRequestTopic",
        "MetadataResponseTopic",
        "OffsetCommitRequestTopic",
        "OffsetCommitResponseTopic",
        "OffsetDeleteRequestTopic",
        "OffsetDeleteResponseTopic",
        "OffsetFetchRequestTopic",
        "OffsetFetchRequestTopics",
        "OffsetFetchResponseTopic",
        "OffsetFetchResponseTopics",
        "OngoingTopicReassignment",
        "ReassignableTopic",
        "ReassignableTopicResponse",
        "ScramCredentialDeletion",
        "ScramCredentialUpsertion",
        "TopicProduceData",
        "TopicProduceResponse",
        "TopicRequest",
        "TopicResponse",
        "TxnOffsetCommitRequestTopic",
        "TxnOffsetCommitResponseTopic",
        "UserName",
        "WritableTxnMarkerTopic",
        "WritableTxnMarkerTopicResult",
    }
)
"""The structs whose `name` is that of a topic or a user."""

_PLAIN_NAMES: Final = frozenset(
    {
        "AlterableConfig",
        "CreatableTopicConfig",
        "CreatableTopicConfigs",
        "DescribeConfigsResourceResult",
        "DescribeConfigsSynonym",
        "FinalizedFeatureKey",
        "JoinGroupRequestProtocol",
        "SupportedFeatureKey",
    }
)
"""The structs whose `name` is that of a setting, a protocol or a feature."""

_SPECIAL: Final[Mapping[tuple[str, str], Kind]] = {
    ("AclCreation", "resource_name"): Kind.PLAIN,  # access rules, which handlers translate
    ("DescribeAclsResource", "resource_name"): Kind.PLAIN,
    ("DeleteAclsMatchingAcl", "resource_name"): Kind.PLAIN,
    ("OpData", "key"): Kind.PLAIN,  # of quotas
    ("ValueData", "key"): Kind.PLAIN,
}

_TENANTS_RESOURCES: Final = frozenset({ConfigResourceType.TOPIC, ConfigResourceType.GROUP})


class UnclassifiedField(Exception):
    """A message has a text field that is not classified as a tenant's name or another text."""


def kind_of(struct: type, field: Field) -> Kind:
    """The kind of a field; raise `UnclassifiedField`."""
    if field.name == "name":
        if struct.__name__ in _NAMES:
            return Kind.NAME
        if struct.__name__ in _PLAIN_NAMES:
            return Kind.PLAIN
    kind = _SPECIAL.get((struct.__name__, field.name)) or _BY_NAME.get(field.name)
    if kind is None:
        raise UnclassifiedField(f"does a tenant own what this names? field={struct.__name__}.{field.name}")
    return kind


@dataclass(frozen=True, slots=True, kw_only=True)
class _Plan:
    """The fields of a struct with something to translate."""

    texts: tuple[tuple[str, Kind], ...]
    lists: tuple[tuple[str, Kind], ...]
    structs: tuple[tuple[str, "_Plan"], ...]
    arrays: tuple[tuple[str, "_Plan"], ...]

    @property
    def is_empty(self) -> bool:
        return not (self.texts or self.lists or self.structs or self.arrays)


_plans: Final[dict[type, _Plan]] = {}


def plan_of(struct: type) -> _Plan:
    """What there is to translate in a message, or in a struct of one; raise `UnclassifiedField`."""
    return _plans.get(struct) or _plans.setdefault(struct, _planned(struct))


def _planned(struct: type) -> _Plan:
    texts: list[tuple[str, Kind]] = []
    lists: list[tuple[str, Kind]] = []
    structs: list[tuple[str, _Plan]] = []
    arrays: list[tuple[str, _Plan]] = []
    for field in fields_of(struct):
        of = field.type[0] if isinstance(field.type, list) else field.type
        if isinstance(of, type):
            if not (inner := plan_of(of)).is_empty:
                (arrays if field.is_array else structs).append((field.name, inner))
        elif of == "string" and (kind := kind_of(struct, field)) is not Kind.PLAIN:
            (lists if field.is_array else texts).append((field.name, kind))
    return _Plan(texts=tuple(texts), lists=tuple(lists), structs=tuple(structs), arrays=tuple(arrays))


def enter(tenant: str, request: Message) -> None:
    """Give what a request names the names that it has inside the cluster."""
    _enter(tenant, plan_of(type(request)), request)


def leave(tenant: str, response: Response) -> None:
    """Give what a response names the names that the tenant's clients know, and leave out what isn't the tenant's."""
    _leave(tenant, plan_of(type(response)), response)


def _enter(tenant: str, plan: _Plan, item: Any) -> None:
    for name, kind in plan.texts:
        setattr(item, name, _entered(tenant, kind, getattr(item, name), item))
    for name, kind in plan.lists:
        if (values := getattr(item, name)) is not None:
            setattr(item, name, [_entered(tenant, kind, each, item) for each in values])
    for name, inner in plan.structs:
        if (value := getattr(item, name)) is not None:
            _enter(tenant, inner, value)
    for name, inner in plan.arrays:
        for value in getattr(item, name) or ():
            _enter(tenant, inner, value)


def _entered(tenant: str, kind: Kind, value: str | None, item: Any) -> str | None:
    if value is None or not _is_name(kind, item) or (not value and kind is not Kind.GROUP):
        return value
    return qualified(tenant, value)


def _is_name(kind: Kind, item: Any) -> bool:
    return kind in (Kind.NAME, Kind.GROUP) or (kind is Kind.RESOURCE and item.resource_type in _TENANTS_RESOURCES)


def _leave(tenant: str, plan: _Plan, item: Any) -> bool:
    """Translate; returns whether the tenant may see the item at all."""
    is_visible = True
    for name, kind in plan.texts:
        if value := getattr(item, name):
            shown = _left(tenant, kind, value, item)
            is_visible = is_visible and shown is not None
            setattr(item, name, shown or "")
    for name, kind in plan.lists:
        if values := getattr(item, name):
            left = [_left(tenant, kind, each, item) for each in values]
            setattr(item, name, [each for each in left if each is not None])
    for name, inner in plan.structs:
        if (value := getattr(item, name)) is not None and not _leave(tenant, inner, value):
            setattr(item, name, None)
    for name, inner in plan.arrays:
        if values := getattr(item, name):
            setattr(item, name, [each for each in values if _leave(tenant, inner, each)])
    return is_visible


def _left(tenant: str, kind: Kind, value: str, item: Any) -> str | None:
    if kind is Kind.HIDDEN:
        return HIDDEN_TEXT
    if kind is Kind.TEXT:
        return without_tenant(tenant, value)
    return unqualified(tenant, value) if _is_name(kind, item) else value
