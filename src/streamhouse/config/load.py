"""Load: flags, environment, `streamhouse.toml` and defaults become one `Settings`.

Owns        the order of precedence, the names of flags and variables, and errors that name the source of a wrong value
Leaves      the settings themselves to `settings`; the syntax of quantities to `fields`; the command line to `cli`
"""

import difflib
import math
import re
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final, Literal, NamedTuple, get_args, get_origin

import msgspec
from msgspec import Meta

from streamhouse.config.exposure import check_listeners
from streamhouse.config.fields import EXAMPLES, parse_address, parse_number, parse_switch, unit_of
from streamhouse.config.listener_spec import is_list_of_listeners
from streamhouse.config.settings import Settings
from streamhouse.errors import Misconfigured

PREFIX: Final = "STREAMHOUSE_"
FILE_NAME: Final = "streamhouse.toml"
FILE_VARIABLE: Final = "STREAMHOUSE_CONFIG"
OTHER_VARIABLES: Final = (
    FILE_VARIABLE,
    "STREAMHOUSE_AGENTS",
    "STREAMHOUSE_SQL_FOLDER",
    "STREAMHOUSE_USER",
    "STREAMHOUSE_PASSWORD",
    "STREAMHOUSE_PASSWORD_FILE",
    "STREAMHOUSE_TOKEN",
    "STREAMHOUSE_TOKEN_FILE",
    "STREAMHOUSE_CA",
    "STREAMHOUSE_CERT",
    "STREAMHOUSE_KEY",
)
"""Read by commands and Spark; no settings of agents."""
CONNECTION_PREFIX: Final = "STREAMHOUSE_CONNECTION_"
"""Prefix of the connections of pipelines and SQL to other systems; the user's name of the connection follows."""

# The settings that have a flag of their own; all others are set with `--set section.field=value`.
FLAGS: Final[Mapping[str, str]] = {
    "agent.data": "--data",
    "kafka.listen": "--kafka",
    "http.listen": "--http",
    "grpc.listen": "--grpc",
    "metadata.url": "--metadata",
    "store.url": "--store",
    "wal.kind": "--wal",
    "wal.fsync": "--fsync",
}

LEAST_HEARTBEAT_S: Final = 0.05
"""A heartbeat with a shorter timeout fails whenever the machine is busy."""

Source = Literal["flag", "environment", "file", "default", "agent"]
ORIGINS: Final = "origins"

_PASSWORD: Final = re.compile(r"(://[^/@:]*):[^/@]*@")


@dataclass(frozen=True, slots=True, kw_only=True)
class Explained:
    """One setting: its value, the source of the value, and its description. Passwords in URLs are masked."""

    name: str
    value: object
    default: object
    source: Source
    where: str
    variable: str
    allowed: str
    about: str


class _RawValue(NamedTuple):
    raw: object
    source: Source
    where: str


@dataclass(frozen=True, slots=True, kw_only=True)
class _Field:
    """One setting as the structs declare it."""

    section: str
    name: str
    annotated: Any
    type: Any
    meta: Meta
    default: object

    @property
    def path(self) -> str:
        return f"{self.section}.{self.name}"

    @property
    def variable(self) -> str:
        return f"{PREFIX}{self.section}_{self.name}".upper()

    @property
    def choices(self) -> tuple[str, ...]:
        return get_args(self.type) if get_origin(self.type) is Literal else ()

    @property
    def is_address(self) -> bool:
        return self.name in ("listen", "advertise")


def _fields() -> Iterator[_Field]:
    for section in msgspec.structs.fields(Settings):
        if section.name == ORIGINS:
            continue
        for field in msgspec.structs.fields(section.type):
            kind, meta = get_args(field.type)
            yield _Field(
                section=section.name,
                name=field.name,
                annotated=field.type,
                type=kind,
                meta=meta,
                default=field.default,
            )


_BY_PATH: Final[Mapping[str, _Field]] = {field.path: field for field in _fields()}
_BY_VARIABLE: Final[Mapping[str, _Field]] = {field.variable: field for field in _BY_PATH.values()}


def load_settings(flags: Mapping[str, object], environ: Mapping[str, str], toml_path: Path | None = None) -> Settings:
    """Merge flags, environment, file and defaults; raises `Misconfigured` that names the source of the first wrong
    value.

    Flags are keyed like `wal.fsync`; None means not set. Without `toml_path` the file is the one that
    `STREAMHOUSE_CONFIG` names, else `streamhouse.toml` in the working folder if there is one.
    """
    return _settings(_choose(flags, environ, toml_path))


def explain_settings(
    flags: Mapping[str, object], environ: Mapping[str, str], toml_path: Path | None = None
) -> tuple[Explained, ...]:
    """Every setting with its value, source and documentation, in the order of the structs."""
    values = _choose(flags, environ, toml_path)
    settings = _settings(values)
    return tuple(_explain(field, settings, values.get(path)) for path, field in _BY_PATH.items())


def describe_settings(settings: Settings) -> tuple[Explained, ...]:
    """Every setting of a running agent, with its source. What no source gave and isn't the default was decided by the
    agent as it started."""
    return tuple(_explain(field, settings, _origin(settings, field)) for field in _BY_PATH.values())


def _origin(settings: Settings, field: _Field) -> _RawValue | None:
    value = getattr(getattr(settings, field.section), field.name)
    if field.path in settings.origins:
        source, where = settings.origins[field.path]
        return _RawValue(value, msgspec.convert(source, Source), where)
    return None if value == field.default else _RawValue(value, "agent", "by the agent")


def without_password(url: str) -> str:
    return _PASSWORD.sub(r"\1:***@", url)


def _explain(field: _Field, settings: Settings, values: _RawValue | None) -> Explained:
    value = getattr(getattr(settings, field.section), field.name)
    return Explained(
        name=field.path,
        value=without_password(value) if isinstance(value, str) else value,
        default=field.default,
        source=values.source if values else "default",
        where=values.where if values else "",
        variable=field.variable,
        allowed=_allowed(field),
        about=field.meta.description or "",
    )


def _settings(values: Mapping[str, _RawValue]) -> Settings:
    sections: dict[str, dict[str, object]] = {}
    for path, value in values.items():
        field = _BY_PATH[path]
        sections.setdefault(field.section, {})[field.name] = _convert(field, value)
    origins = {path: (value.source, value.where) for path, value in values.items()}
    settings = msgspec.structs.replace(msgspec.convert(sections, Settings), origins=origins)
    _check_combinations(settings)
    return settings


# --- sources ------------------------------------------------------------------------------------------------------


def _choose(flags: Mapping[str, object], environ: Mapping[str, str], toml_path: Path | None) -> dict[str, _RawValue]:
    return _from_file(toml_path or _default_file(environ)) | _from_environment(environ) | _from_flags(flags)


def _from_flags(flags: Mapping[str, object]) -> dict[str, _RawValue]:
    for path in flags:
        if path not in _BY_PATH:
            raise Misconfigured(f"unknown setting; where=--set {path}{_did_you_mean(path, _BY_PATH)}")
    return {
        path: _RawValue(raw, "flag", FLAGS.get(path, f"--set {path}")) for path, raw in flags.items() if raw is not None
    }


def _from_environment(environ: Mapping[str, str]) -> dict[str, _RawValue]:
    values = {}
    for name, text in sorted(environ.items()):
        if not name.startswith(PREFIX) or name in OTHER_VARIABLES or name.startswith(CONNECTION_PREFIX):
            continue
        if name not in _BY_VARIABLE:
            hint = _did_you_mean(name, [*_BY_VARIABLE, *OTHER_VARIABLES])
            raise Misconfigured(f"unknown environment variable; where={name}{hint} (all: streamhouse config show)")
        if text:  # an empty variable is one that a container passed through without a value
            values[_BY_VARIABLE[name].path] = _RawValue(text, "environment", name)
    return values


def _default_file(environ: Mapping[str, str]) -> Path | None:
    if path := environ.get(FILE_VARIABLE):
        return Path(path)
    default = Path(FILE_NAME)
    return default if default.exists() else None


def _from_file(path: Path | None) -> dict[str, _RawValue]:
    if path is None:
        return {}
    values = {}
    sections = sorted({field.section for field in _BY_PATH.values()})
    for section, table in _read_toml(path).items():
        if section not in sections:
            raise Misconfigured(f"unknown section; where={path}: [{section}]{_did_you_mean(section, sections)}")
        if not isinstance(table, dict):
            raise Misconfigured(
                f"a section must be a table; where={path}: {section} allowed=[{section}] and its fields"
            )
        for name, raw in table.items():
            values[f"{section}.{name}"] = _file_value(path, section, name, raw)
    return values


def _file_value(path: Path, section: str, name: str, raw: object) -> _RawValue:
    where = f"{path}: [{section}] {name}"
    if f"{section}.{name}" not in _BY_PATH:
        known = [field.name for field in _BY_PATH.values() if field.section == section]
        hint = _did_you_mean(name, known) or f" allowed={', '.join(known)}"
        raise Misconfigured(f"unknown setting; where={where}{hint}")
    return _RawValue(raw, "file", where)


def _read_toml(path: Path) -> dict[str, object]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise Misconfigured(f"settings file not found; where={path} (--config or {FILE_VARIABLE} names it)") from None
    except OSError as error:
        raise Misconfigured(f"settings file can't be read; where={path} why={error.strerror}") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Misconfigured(f"settings file is not TOML; where={path} why={error}") from None


# --- values -------------------------------------------------------------------------------------------------------


def _convert(field: _Field, value: _RawValue) -> object:
    try:
        raw = _parse(field, value.raw) if isinstance(value.raw, str) else value.raw
        if isinstance(raw, float) and not math.isfinite(raw):
            raise ValueError("not a finite number")
        return msgspec.convert(raw, field.annotated)
    except ValueError:  # msgspec's ValidationError is one
        near = _did_you_mean(str(value.raw), field.choices)
        raise Misconfigured(
            f"bad value for {field.path}; where={value.where} value={value.raw!r} allowed={_allowed(field)}{near}"
        ) from None


def _parse(field: _Field, text: str) -> object:
    if field.type is bool:
        return parse_switch(text)
    if field.type in (int, float):
        return parse_number(text, unit_of(field.name))
    if field.is_address and text and not is_list_of_listeners(text):
        return str(parse_address(text))
    return text


def _allowed(field: _Field) -> str:
    if field.choices:
        return _one_of(field.choices)
    if field.is_address:
        return "HOST:PORT, or NAME://HOST:PORT with commas"
    if field.type is bool:
        return "true or false"
    if field.type not in (int, float):
        return "text"
    words = ["a whole number" if field.type is int else "a number", *_bounds(field.meta)]
    unit = unit_of(field.name)
    return " ".join(words) + (f", or text such as {EXAMPLES[unit]}" if unit else "")


def _bounds(meta: Meta) -> list[str]:
    limits = {"above": meta.gt, "from": meta.ge, "up to": meta.le}
    return [f"{word} {limit:g}" for word, limit in limits.items() if limit is not None]


def _one_of(choices: Iterable[str]) -> str:
    *first, last = choices
    return f"{', '.join(first)} or {last}" if first else last


def _did_you_mean(word: str, known: Iterable[str]) -> str:
    near = difflib.get_close_matches(word, list(known), n=1, cutoff=0.6)
    return f"; did you mean {near[0]}?" if near else ""


def _check_combinations(settings: Settings) -> None:
    """Reject values that are valid alone but contradict each other."""
    check_listeners(settings)
    lease, flush = settings.lease, settings.flush
    if lease.heartbeat_timeout_s < LEAST_HEARTBEAT_S:
        raise Misconfigured(
            "lease.renew_s + lease.margin_s + lease.takeover_s must be less than lease.ttl_s, and leave"
            f" {4 * LEAST_HEARTBEAT_S:g} s or more for heartbeats that fail, or leases are lost between two of them;"
            f" renew_s={lease.renew_s:g} margin_s={lease.margin_s:g} takeover_s={lease.takeover_s:g}"
            f" ttl_s={lease.ttl_s:g}"
        )
    if flush.retry_s > flush.retry_max_s:
        raise Misconfigured(
            "flush.retry_s must not be above flush.retry_max_s;"
            f" retry_s={flush.retry_s:g} retry_max_s={flush.retry_max_s:g}"
        )
