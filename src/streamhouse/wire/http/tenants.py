"""Tenants: requests of a tenant's users over HTTP and their answers, with the names that things have in the cluster.

Data path   endpoint -> **tenants** (`enter`) -> handler -> **tenants** (`leave`) -> response
Owns        the operations that tenants have; which of their parameters and fields name something that a tenant has
Leaves      the form of names to `model.tenant`, rights to `broker.security`, the texts of errors to `errors`

Invariants  an operation that is not in `SERVED` is refused to tenants
            every text of the operations in it is classified here: a new field is seen
            SQL has the names that the tenant knows: workers and supervisors act as the tenant's user
            an answer shows nothing of another tenant, whatever a handler returns: what it names is left out

Records pass as they are. Access rules, quotas and keys take more than one field, and handlers translate them.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final

import msgspec
from msgspec import Raw, inspect
from starlette.responses import Response

from streamhouse.errors import AccessDenied
from streamhouse.model.access import Caller
from streamhouse.model.table import MADE_BY
from streamhouse.model.tenant import qualified, unqualified, without_tenant
from streamhouse.wire.http.operations import JSON, Operation


class Kind(Enum):
    """The kind of a text field."""

    NAME = auto()
    """The name of something that a tenant has."""
    PRINCIPAL = auto()
    """A user or group, as in `User:alice`."""
    TEXT = auto()
    """A text for people, which may have names in it."""
    OPTIONS = auto()
    """Options of a pipeline or table, of which some name what a tenant has."""
    PLAIN = auto()
    """Nothing of the above, nor anything inside of it."""


SERVED: Final = frozenset(
    {
        "abort_transaction",
        "ask_sql",
        "cancel_sql",
        "change_password",
        "change_role",
        "change_topic",
        "change_view_rows",
        "complete_sql",
        "create_acls",
        "create_key",
        "create_topic",
        "create_user",
        "delete_acls",
        "delete_group",
        "delete_pipeline",
        "delete_table",
        "delete_topic",
        "delete_user",
        "get_cluster",
        "get_group",
        "get_lag",
        "get_last_commit",
        "get_pipeline",
        "get_table",
        "get_topic",
        "get_transaction",
        "get_view",
        "list_acls",
        "list_groups",
        "list_keys",
        "list_lags",
        "list_partitions",
        "list_pipelines",
        "list_quotas",
        "list_roles",
        "list_tables",
        "list_topic_settings",
        "list_topics",
        "list_transactions",
        "list_users",
        "list_views",
        "offsets_at_time",
        "pause_pipeline",
        "pipeline_events",
        "pipeline_versions",
        "place_segments",
        "plan_reading",
        "publish_batches",
        "publish_records",
        "put_pipeline",
        "put_table",
        "read_batches",
        "read_partition",
        "read_topic",
        "reset_group",
        "restart_pipeline",
        "resume_pipeline",
        "revoke_key",
        "search",
        "set_quota",
        "sign_read",
        "topic_partitions",
        "validate_sql",
        "view_rows",
        "who_am_i",
    }
)
"""The operations that tenants have, besides those that are open to everybody."""

RECORDS: Final = frozenset(
    {
        "ask_sql",
        "complete_sql",
        "read_batches",
        "read_partition",
        "read_topic",
        "search",
        "validate_sql",
        "view_rows",
    }
)
"""The operations whose answers are records; what else is in them is what the client has asked for. SQL workers answer
with the names that the tenant knows, because they act as its user."""

_PATH: Final[Mapping[str, Kind]] = {
    "topic": Kind.NAME,
    "group": Kind.NAME,
    "pipeline": Kind.NAME,
    "query": Kind.PLAIN,  # of commits, which handlers translate
    "role": Kind.NAME,
    "table": Kind.NAME,
    "transactional_id": Kind.NAME,
    "user": Kind.NAME,
    "view": Kind.NAME,
    "partition": Kind.PLAIN,
    "key": Kind.PLAIN,
    "sql_query": Kind.PLAIN,
}

NAMING_OPTIONS: Final = frozenset({"dead_letters", MADE_BY, "settings_of", "topic"})
"""Options of pipelines and tables that name something."""
NAMING_NOTHING: Final = frozenset({("dead_letters", "none")})

_BY_NAME: Final[Mapping[str, Kind]] = {
    **dict.fromkeys(
        ("topic", "group", "transactional_id", "key_subject", "value_subject", "pipeline", "streams", "target"),
        Kind.NAME,
    ),
    **dict.fromkeys(("principal", "groups", "members", "add", "remove", "runs_as", "applied_by"), Kind.PRINCIPAL),
    **dict.fromkeys(("detail", "reason"), Kind.TEXT),
    "options": Kind.OPTIONS,
    **dict.fromkeys(
        (
            "about",
            "api_key",
            "bootstrap",
            "broker_setting",
            "client",
            "cluster_id",
            "columns",
            "connector",
            "covers",
            "cursor",
            "deletes",
            "default",
            "description",
            "effective_settings",
            "entity",  # of quotas, which handlers translate
            "grpc",
            "header",
            "headers",
            "health",
            "host",
            "http",
            "from_",
            "id",
            "instance",
            "json",
            "kafka",
            "key",
            "key_encoding",
            "key_id",
            "kind",
            "level",
            "limits",
            "listener",
            "mechanisms",
            "member",
            "metadata",
            "operation",
            "password",
            "notes",
            "outcome",
            "path",
            "pattern",
            "permission",
            "phase",
            "progress",
            "protocol",
            "protocol_type",
            "query",
            "query_id",
            "request_id",
            "resource_type",
            "row",
            "rows",
            "settings",
            "signature",
            "sql",
            "start",
            "starting",
            "state",
            "statements",
            "store",
            "supervisor",
            "tables",
            "text",
            "title",
            "topic_id",
            "type",
            "upserts",
            "url",
            "value",
            "version",
            "wish",
        ),
        Kind.PLAIN,
    ),
}

_SPECIAL: Final[Mapping[tuple[str, str], Kind | None]] = {
    ("NewTopic", "name"): Kind.NAME,
    ("TopicView", "name"): Kind.NAME,
    ("TopicDetails", "name"): Kind.NAME,
    ("NewUser", "name"): Kind.NAME,
    ("UserView", "name"): Kind.NAME,
    ("PipelineView", "name"): Kind.NAME,
    ("TableView", "name"): Kind.NAME,
    ("ViewView", "name"): Kind.NAME,
    ("RoleView", "name"): Kind.NAME,
    ("SettingView", "name"): Kind.PLAIN,
    ("ReadPlanQuestion", "cursor"): Kind.NAME,
    ("ReadPlanView", "next"): Kind.NAME,
    ("EventView", "text"): Kind.TEXT,
    ("StatusView", "error"): Kind.TEXT,
    ("TablesAnswer", "tables"): None,
    ("PutAnswer", "pipeline"): None,
    ("TransactionsQuery", "cursor"): Kind.NAME,
    ("TransactionViews", "cursor"): Kind.NAME,
    ("RuleQuery", "principal"): Kind.PLAIN,  # access rules, which handlers translate
    ("RuleQuery", "name"): Kind.PLAIN,
    ("Rules", "acls"): Kind.PLAIN,
    ("RuleViews", "acls"): Kind.PLAIN,
    ("Groups", "groups"): None,  # of consumers, each of which has a name
    ("GroupLags", "groups"): None,
    ("Settings", "settings"): None,
    ("Publication", "records"): Kind.PLAIN,
    ("KeyViews", "keys"): None,
    ("CreatedKey", "key"): None,
}


class UnclassifiedField(Exception):
    """A text field that is not classified as a tenant's name or another text."""


@dataclass(frozen=True, slots=True, kw_only=True)
class _Struct:
    """`fields` are those with something to translate: name in the struct, name in JSON, plan."""

    fields: tuple[tuple[str, str, "Plan"], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class _List:
    item: "Plan"


Plan = Kind | _Struct | _List


def plan_of(kind: Any) -> Plan | None:
    """What there is to translate in a type; None: nothing. Raise `UnclassifiedField`."""
    return _plan(inspect.type_info(kind), where="")


def _plan(kind: inspect.Type, *, where: str) -> Plan | None:
    match kind:
        case inspect.Metadata():
            return _plan(kind.type, where=where)
        case inspect.StrType() | inspect.DictType() | inspect.RawType() | inspect.AnyType():
            raise UnclassifiedField(f"does a tenant own what this names? field={where}")
        case inspect.UnionType():
            return next((plan for each in kind.types if (plan := _plan(each, where=where)) is not None), None)
        case inspect.ListType() | inspect.VarTupleType() | inspect.CollectionType():
            item = _plan(kind.item_type, where=where)
            return None if item is None else _List(item=item)
        case inspect.StructType():
            return _plan_of_struct(kind)
    return None


def _plan_of_struct(kind: inspect.StructType) -> Plan | None:
    fields: list[tuple[str, str, Plan]] = []
    for field in kind.fields:
        key = (kind.cls.__name__, field.name)
        classified = _SPECIAL[key] if key in _SPECIAL else _BY_NAME.get(field.name)
        plan: Plan | None = classified if classified is not None and _has_text(field.type) else None
        if classified is None:
            plan = _plan(field.type, where=".".join(key))
        elif plan is not None and _is_list(field.type) and classified is not Kind.PLAIN:
            plan = _List(item=classified)
        if plan is not None and plan is not Kind.PLAIN:
            fields.append((field.name, field.encode_name, plan))
    return _Struct(fields=tuple(fields)) if fields else None


def _has_text(kind: inspect.Type) -> bool:
    """Whether a field may have a text in it; one without is translated in no way, whatever its name."""
    if isinstance(kind, inspect.Metadata):
        return _has_text(kind.type)
    if isinstance(kind, inspect.UnionType):
        return any(_has_text(each) for each in kind.types)
    return not isinstance(kind, inspect.IntType | inspect.FloatType | inspect.BoolType | inspect.NoneType)


def _is_list(kind: inspect.Type) -> bool:
    return isinstance(kind, inspect.ListType | inspect.VarTupleType | inspect.CollectionType)


# --- requests


def require_served(caller: Caller, operation: Operation[Any, Any]) -> None:
    """Raise `AccessDenied` unless tenants have this operation."""
    if operation.name not in SERVED and not operation.needs.is_open:
        raise AccessDenied(caller.principal, operation="use", resource_type="operation", name=operation.name)


def enter_path(tenant: str, path: Mapping[str, Any]) -> Mapping[str, Any]:
    """The parameters of a path as they are inside the cluster."""
    return {name: qualified(tenant, value) if _PATH.get(name) is Kind.NAME else value for name, value in path.items()}


def enter(tenant: str, value: Any) -> None:
    """Give what a query or a body names the names that it has inside the cluster."""
    if isinstance(value, msgspec.Struct) and (plan := _planned(type(value))) is not None:
        _enter(tenant, plan, value)


def _enter(tenant: str, plan: Plan, value: Any) -> Any:
    match plan:
        case _ if value is None:
            return None
        case _Struct():
            for name, _, inner in plan.fields:
                msgspec.structs.force_setattr(value, name, _enter(tenant, inner, getattr(value, name)))
            return value
        case _List():
            return [_enter(tenant, plan.item, each) for each in value]
        case Kind.NAME:
            return qualified(tenant, value) if value else value
        case Kind.PRINCIPAL:
            kind, colon, name = value.partition(":")
            return f"{kind}:{qualified(tenant, name)}" if colon and name else value
        case Kind.OPTIONS:
            return {name: qualified(tenant, text) if _names(name, text) else text for name, text in value.items()}
    return value


def _names(option: str, value: str) -> bool:
    return bool(value) and option in NAMING_OPTIONS and (option, value) not in NAMING_NOTHING


# --- answers


def shown(tenant: str, value: msgspec.Struct) -> Mapping[str, Any]:
    """A value as the tenant's users see it, as JSON; it is the tenant's."""
    plan = _planned(type(value))
    assert plan is not None
    left = _leave(tenant, plan, Raw(msgspec.json.encode(value)))
    assert left is not None
    decoded: Mapping[str, Any] = msgspec.json.decode(left)
    return decoded


def leave(tenant: str, operation: Operation[Any, Any], response: Response) -> Response:
    """An answer with the names that the tenant's users know, without what isn't the tenant's."""
    if operation.name in RECORDS or operation.name not in SERVED:  # operations without a login have no names
        return response
    if "location" in response.headers:
        response.headers["location"] = without_tenant(tenant, response.headers["location"])
    if operation.response is None or not response.body or response.media_type != JSON:
        return response
    plan = _planned(_kind_of(operation, response.body))
    if plan is not None:
        response.body = bytes(_leave(tenant, plan, Raw(response.body)) or b"{}")
    response.headers["content-length"] = str(len(response.body))
    return response


def _kind_of(operation: Operation[Any, Any], body: bytes | memoryview) -> type[msgspec.Struct]:
    """Which of an operation's answers this is."""
    assert operation.response is not None
    if operation.also_response is None:
        return operation.response
    try:
        msgspec.json.decode(body, type=operation.also_response)
    except msgspec.ValidationError:
        return operation.response
    return operation.also_response


def _leave(tenant: str, plan: Plan, raw: Raw) -> Raw | None:
    """The JSON as the tenant sees it; None if it is about something that isn't the tenant's."""
    if bytes(raw) == b"null":
        return raw
    if isinstance(plan, _Struct):
        return _leave_struct(tenant, plan, raw)
    if isinstance(plan, _List):
        items = (_leave(tenant, plan.item, each) for each in msgspec.json.decode(raw, type=list[Raw]))
        return Raw(msgspec.json.encode([each for each in items if each is not None]))
    if plan is Kind.OPTIONS:
        return _leave_options(tenant, msgspec.json.decode(raw, type=dict[str, str]))
    value = msgspec.json.decode(raw, type=str)
    shown = _SHOWN[plan](tenant, value) if value else value
    return None if shown is None else Raw(msgspec.json.encode(shown))


def _leave_struct(tenant: str, plan: _Struct, raw: Raw) -> Raw | None:
    values = msgspec.json.decode(raw, type=dict[str, Raw])
    for _, name, inner in plan.fields:
        if name in values:
            if (shown := _leave(tenant, inner, values[name])) is None:
                return None
            values[name] = shown
    return Raw(msgspec.json.encode(values))


def _leave_options(tenant: str, options: Mapping[str, str]) -> Raw:
    shown = {name: unqualified(tenant, text) if _names(name, text) else text for name, text in options.items()}
    return Raw(msgspec.json.encode({name: text for name, text in shown.items() if text is not None}))


def _unqualified_principal(tenant: str, text: str) -> str | None:
    kind, _, name = text.partition(":")
    shown = unqualified(tenant, name)
    return None if shown is None else f"{kind}:{shown}"


_SHOWN: Final[Mapping[Kind, Callable[[str, str], str | None]]] = {
    Kind.NAME: unqualified,
    Kind.PRINCIPAL: _unqualified_principal,
    Kind.TEXT: without_tenant,
}

_plans: Final[dict[type, Plan | None]] = {}


def _planned(kind: type) -> Plan | None:
    if kind not in _plans:
        _plans[kind] = plan_of(kind)
    return _plans[kind]
