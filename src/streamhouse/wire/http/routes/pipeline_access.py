"""Access to pipelines: who may act for one, and what its owner must be allowed for it to run.

Owns        checking a new definition against the rights of the user it will run as; which names it may have
Leaves      checking each request of the running pipeline to the operations that it calls, as its owner

A definition names what it reads as far as its text was analysed, and a client may leave that out. So this check tells
users early; what holds is that a pipeline acts with the rights of its owner while it runs.
"""

from dataclasses import replace
from typing import Any

from streamhouse.broker.broker import Broker
from streamhouse.broker.security.security import Security
from streamhouse.errors import AccessDenied, InvalidDefinition, UnknownPipeline, UnknownTable
from streamhouse.model.access import ANONYMOUS, CLUSTER, Caller, Operation, Resource, ResourceType
from streamhouse.model.pipeline import Definition, Kind, PipelineName
from streamhouse.model.table import Connector
from streamhouse.model.tenant import SEPARATOR, bare, tenant_of
from streamhouse.wire.authorization import RequestAccess
from streamhouse.wire.http.operations import Call


async def require_pipeline(broker: Broker, access: RequestAccess, name: str) -> None:
    """Raise `AccessDenied` unless the caller may alter the pipeline, or is the user it runs as."""
    if access.allows(Operation.ALTER, ResourceType.PIPELINE, name):
        return  # each batch of a running pipeline comes here: not an act of administration
    if not await _is_owner(broker, access, name):
        access.require(Operation.ALTER, ResourceType.PIPELINE, name)


async def require_shown(broker: Broker, access: RequestAccess, kind: ResourceType, name: str) -> None:
    """Raise `AccessDenied` unless the caller may describe the pipeline or view, or is the user it runs as: a running
    pipeline asks whether it is still there, and what its view has."""
    if not access.allows(Operation.DESCRIBE, kind, name) and not await _is_owner(broker, access, name):
        access.require(Operation.DESCRIBE, kind, name)


async def _is_owner(broker: Broker, access: RequestAccess, name: str) -> bool:
    try:
        stored = await broker.pipelines.find(PipelineName(name))
    except UnknownPipeline:
        return False
    return stored.pipeline.definition.runs_as == access.caller.principal


async def require_definition(broker: Broker, access: RequestAccess, definition: Definition) -> None:
    """Raise `AccessDenied` unless the caller may have a pipeline with this definition."""
    try:
        await broker.pipelines.find(definition.name)
    except UnknownPipeline:
        access.require(Operation.CREATE, ResourceType.PIPELINE, definition.name)
    else:
        access.require(Operation.ALTER, ResourceType.PIPELINE, definition.name)
    if definition.kind is Kind.PYTHON:
        access.require_cluster(Operation.RUN_CODE)
    owner = owner_of(access)
    for name in definition.shape.streams if definition.shape is not None else ():
        await _require_table(broker, owner, Operation.READ, name)
    if definition.target:
        await _require_table(broker, owner, Operation.WRITE, definition.target)


def refusal_of(security: Security, definition: Definition) -> str:
    """Why a pipeline may not run, before it asks for anything; empty: it may. What it reads and writes is checked as it
    does so."""
    caller = Caller(principal=definition.runs_as or ANONYMOUS)
    resource = Resource(ResourceType.PIPELINE, definition.name)
    if caller.principal == ANONYMOUS and not security.access.may(caller, Operation.CREATE, resource):
        return (
            "it has no owner: it was created before there were logins; do=apply it again, as the user it is to run as"
        )
    if definition.kind is Kind.PYTHON and not security.access.may(caller, Operation.RUN_CODE, CLUSTER):
        return f"its owner may not run code; principal={definition.runs_as} needs=run-code on the cluster"
    return ""


async def _require_table(broker: Broker, access: RequestAccess, operation: Operation, name: str) -> None:
    """Raise `AccessDenied` unless rows of this table may be read or written; what can't be found is left to Spark.

    What agents don't keep (files, lake tables, databases) is read by who may describe its definition, and written by
    who may make it.
    """
    try:
        table = await broker.tables.find(name)
    except UnknownTable:
        return
    if table.connector is Connector.TOPIC:
        access.require_topic(operation, table.options.get("topic", name))
    elif table.connector is Connector.VIEW:
        access.require(Operation.READ, ResourceType.VIEW, name)
    else:
        right = Operation.CREATE if operation is Operation.WRITE else Operation.DESCRIBE
        access.require(right, ResourceType.TABLE, name)


def require_own_name(call: Call[Any, Any], name: str) -> None:
    """Raise `InvalidDefinition` unless what the caller makes may have this name: what is a tenant's, its users make."""
    if tenant_of(name) != call.caller.tenant:
        raise InvalidDefinition(f"what has this name is a tenant's, and made by its users; name={name}")
    if SEPARATOR in bare(name):
        raise InvalidDefinition(f"{SEPARATOR} is in no name; name={name}")


def require_delegation(broker: Broker, access: RequestAccess) -> None:
    """Raise `AccessDenied` for a tenant's user for whom no process can act: one that acted as itself would see names of
    all tenants."""
    security = broker.security
    if access.caller.tenant and not (security.access.is_enabled and security.tokens is not None):
        raise AccessDenied(
            access.caller.principal, operation="use", resource_type="without access control", name="Spark"
        )


def owner_of(access: RequestAccess) -> RequestAccess:
    """The rights that a pipeline of this caller has: those of the user, not of the groups in the token it came with."""
    if not access.caller.groups:
        return access
    return access.acting_as(replace(access.caller, groups=()))
