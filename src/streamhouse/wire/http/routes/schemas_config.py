"""Configurations, modes and contexts of the schema registry, by Confluent's paths.

GET    /config[/{subject}]    defaultToGlobal: what holds, whoever said it; else what was set here
PUT    /config[/{subject}]    {"compatibility": "FULL"}, and what else clients know; null takes away
DELETE /config[/{subject}]    answers with what it was
GET    /mode[/{subject}]      defaultToGlobal
PUT    /mode[/{subject}]      {"mode": "IMPORT"}; force: also where there are versions
DELETE /mode[/{subject}]      recursive: those of a context's subjects too
GET    /contexts              offset, limit, contextPrefix
"""

from typing import Any

import msgspec

from streamhouse.broker.schemas import SchemaRegistry
from streamhouse.errors import UnknownSubject
from streamhouse.model.schema import Level, Mode
from streamhouse.wire.http.routes.schemas_errors import RegistryFault
from streamhouse.wire.http.routes.schemas_requests import Entry, RegistryCall


class ConfigBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """What isn't named stays as it is. Of metadata and rules the registry is only the keeper."""

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
        """By the names under which a configuration is told; clients write the level under another one."""
        given: dict[str, Any] = msgspec.to_builtins(self)
        if "compatibility" in given:
            given["compatibilityLevel"] = given.pop("compatibility")
        level = given.get("compatibilityLevel")
        if level is not None:
            given["compatibilityLevel"] = _level(level)
        return given


class ModeBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    mode: str | None


def _level(text: str) -> str:
    if text.upper() not in Level.__members__:
        known = ", ".join(Level)
        raise RegistryFault(42203, f"Invalid compatibility level '{text[:100]}'. Valid values are {known}")
    return text.upper()


def entries(schemas: SchemaRegistry) -> list[Entry]:
    handlers = _Rules(schemas)
    return [
        *(Entry("GET", path, handlers.config) for path in ("config", "config/{subject}")),
        *(Entry("PUT", path, handlers.set_config) for path in ("config", "config/{subject}")),
        *(Entry("DELETE", path, handlers.delete_config) for path in ("config", "config/{subject}")),
        *(Entry("GET", path, handlers.mode) for path in ("mode", "mode/{subject}")),
        *(Entry("PUT", path, handlers.set_mode) for path in ("mode", "mode/{subject}")),
        *(Entry("DELETE", path, handlers.delete_mode) for path in ("mode", "mode/{subject}")),
        Entry("GET", "contexts", handlers.contexts),
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
        told = dict(await self._schemas.set_config(call.subject(), body.changes()))
        if "compatibilityLevel" in told:  # what is sent and what is answered have one name, which isn't that of a GET
            told["compatibility"] = told.pop("compatibilityLevel")
        return told

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
        await self._schemas.set_mode(call.subject(), mode, force=force)
        return {"mode": mode}

    async def delete_mode(self, call: RegistryCall) -> Any:
        return {"mode": await self._schemas.delete_mode(call.subject(), recursive=call.flag("recursive"))}

    async def contexts(self, call: RegistryCall) -> Any:
        if call.context is not None:
            raise UnknownSubject(call.subject())
        skipped, limit = call.page()
        prefix = call.text("contextPrefix")
        found = [each for each in await self._schemas.contexts() if each.startswith(prefix)]
        return found[skipped : None if limit is None else skipped + limit]
