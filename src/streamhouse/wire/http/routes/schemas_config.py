"""Configurations, modes and contexts of the schema registry, by Confluent's paths.

GET    /config[/{subject}]    defaultToGlobal: the effective configuration; else only what is set at this level
PUT    /config[/{subject}]    {"compatibility": "FULL"} and Confluent's other fields; null removes a field
DELETE /config[/{subject}]    returns the previous value
GET    /mode[/{subject}]      defaultToGlobal
PUT    /mode[/{subject}]      {"mode": "IMPORT"}; force: even if there are versions
DELETE /mode[/{subject}]      recursive: the modes of a context's subjects as well
GET    /contexts              offset, limit, contextPrefix
"""

from typing import Any, Final

import msgspec

from streamhouse.broker.schemas import SchemaRegistry
from streamhouse.errors import AccessDenied, UnknownSubject
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import lists, needs
from streamhouse.model.schema import Deleted, Level, Mode, Subject
from streamhouse.wire.http.routes.schemas_errors import RegistryFault
from streamhouse.wire.http.routes.schemas_requests import Entry, RegistryCall


class ConfigBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """Fields that are missing stay unchanged. Metadata and rules are stored only, not applied."""

    compatibility: str | msgspec.UnsetType | None = msgspec.UNSET
    compatibility_level: str | msgspec.UnsetType | None = msgspec.UNSET
    compatibility_group: str | msgspec.UnsetType | None = msgspec.UNSET
    compatibility_policy: str | msgspec.UnsetType | None = msgspec.UNSET
    alias: str | msgspec.UnsetType | None = msgspec.UNSET
    alias_for_deks: str | msgspec.UnsetType | None = msgspec.UNSET
    normalize: bool | msgspec.UnsetType | None = msgspec.UNSET
    validate_fields: bool | msgspec.UnsetType | None = msgspec.UNSET
    validate_new_schemas: bool | msgspec.UnsetType | None = msgspec.UNSET
    validate_rules: bool | msgspec.UnsetType | None = msgspec.UNSET
    default_metadata: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    override_metadata: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    default_rule_set: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET
    override_rule_set: dict[str, Any] | msgspec.UnsetType | None = msgspec.UNSET

    def changes(self) -> dict[str, Any]:
        """The changed fields by their names in responses; requests have another name for the level."""
        fields: dict[str, Any] = msgspec.to_builtins(self)
        if "compatibility" in fields:
            fields["compatibilityLevel"] = fields.pop("compatibility")
        level = fields.get("compatibilityLevel")
        if level is not None:
            fields["compatibilityLevel"] = _level(level)
        return fields


class ModeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: str | None


def _level(text: str) -> str:
    if text.upper() not in Level.__members__:
        known = ", ".join(Level)
        raise RegistryFault(42203, f"Invalid compatibility level '{text[:100]}'. Valid values are {known}")
    return text.upper()


GLOBAL: Final = "on the cluster without a subject"
DESCRIBE: Final = needs(Operation.DESCRIBE_CONFIGS, ResourceType.SUBJECT, "subject", about=GLOBAL)
ALTER: Final = needs(
    Operation.ALTER_CONFIGS, ResourceType.SUBJECT, "subject", about=f"{GLOBAL}; read on a subject that is the alias"
)


def entries(schemas: SchemaRegistry) -> list[Entry]:
    handlers = _Rules(schemas)
    return [
        *(Entry("GET", path, handlers.config, DESCRIBE) for path in ("config", "config/{subject}")),
        *(Entry("PUT", path, handlers.set_config, ALTER) for path in ("config", "config/{subject}")),
        *(Entry("DELETE", path, handlers.delete_config, ALTER) for path in ("config", "config/{subject}")),
        *(Entry("GET", path, handlers.mode, DESCRIBE) for path in ("mode", "mode/{subject}")),
        *(Entry("PUT", path, handlers.set_mode, ALTER) for path in ("mode", "mode/{subject}")),
        *(Entry("DELETE", path, handlers.delete_mode, ALTER) for path in ("mode", "mode/{subject}")),
        Entry("GET", "contexts", handlers.contexts, lists(Operation.DESCRIBE, ResourceType.SUBJECT)),
    ]


class _Rules:
    def __init__(self, schemas: SchemaRegistry) -> None:
        self._schemas = schemas

    async def config(self, call: RegistryCall) -> Any:
        scope = call.subject()
        if call.flag("defaultToGlobal"):
            return (await self._schemas.in_force(scope)).config
        return await self._schemas.config(scope)

    async def set_config(self, call: RegistryCall) -> Any:
        body = await call.body(ConfigBody)
        if isinstance(body.alias, str) and body.alias:
            body = msgspec.structs.replace(body, alias=call.name_of_subject(body.alias))
            call.require_subject(Operation.READ, call.subject().beside(str(body.alias)))
        config = dict(await self._schemas.set_config(call.subject(), body.changes()))
        if "compatibilityLevel" in config:  # PUT has one name for the level in request and response, GET another one
            config["compatibility"] = config.pop("compatibilityLevel")
        return config

    async def delete_config(self, call: RegistryCall) -> Any:
        return await self._schemas.delete_config(call.subject())

    async def mode(self, call: RegistryCall) -> Any:
        scope = call.subject()
        mode = (await self._schemas.in_force(scope)).mode if call.flag("defaultToGlobal") else None
        return {"mode": mode or await self._schemas.mode(scope)}

    async def set_mode(self, call: RegistryCall) -> Any:
        force = call.flag("force")
        text = (await call.body(ModeBody)).mode
        if text is not None and text.upper() not in Mode.__members__:
            raise RegistryFault(42204, f"Invalid mode '{text[:100]}'. Valid values are {', '.join(Mode)}")
        mode = None if text is None else Mode(text.upper())
        if call.tenant and mode is Mode.IMPORT:  # importers choose ids, which are numbers of the whole cluster
            raise AccessDenied(call.access.caller.principal, operation="import", resource_type="registry", name="ids")
        await self._schemas.set_mode(call.subject(), mode, force=force)
        return {"mode": mode}

    async def delete_mode(self, call: RegistryCall) -> Any:
        return {"mode": await self._schemas.delete_mode(call.subject(), recursive=call.flag("recursive"))}

    async def contexts(self, call: RegistryCall) -> Any:
        if call.context is not None:
            raise UnknownSubject(call.subject())
        skipped, limit = call.page()
        prefix = call.text("contextPrefix")
        contexts = [
            each for each in await self._schemas.contexts() if each.startswith(prefix) and await self._shows(call, each)
        ]
        return contexts[skipped : None if limit is None else skipped + limit]

    async def _shows(self, call: RegistryCall, context: str) -> bool:
        """Whether the caller may describe the context, or a subject in it."""
        if call.access.is_unrestricted:
            return True
        subjects = await self._schemas.subjects(context=context, deleted=Deleted.WITH)
        return any(call.allows_subject(Operation.DESCRIBE, each) for each in (*subjects, Subject(context, "")))
