"""Schema: the description of message classes and their fields, by version.

Data path   messages (generated classes) -> **schema** -> codec (compiles them)
Owns        the description of a field and of a message; the header version that goes with a message
Leaves      bytes to `codec`; the classes themselves to `messages`, which `tools/generate_messages.py` writes

Ranges of versions are half open like all ranges here: a field exists in `since <= version < until`.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Final, NamedTuple, TypeVar, dataclass_transform
from uuid import UUID

from msgspec import Struct, defstruct, field

T = TypeVar("T")

ZERO_UUID: Final = UUID(int=0)
NEVER: Final = 1 << 15  # above every version, which is an int16
NO_DEFAULT: Final[Any] = object()
API_VERSIONS_KEY: Final = 18

_DEFAULTS: Final[dict[str, Any]] = {
    "bool": False,
    "string": "",
    "bytes": b"",
    "uuid": ZERO_UUID,
    "float64": 0.0,
    "records": None,
}

Buffer = bytes | bytearray | memoryview
"""A contiguous buffer. A memoryview must have items of one byte, so that `len` is its size."""

Records = Buffer | Sequence[Buffer] | None
"""Record batches of a response: one buffer or several, none of which is copied."""

WireType = str | type | list[Any]
"""The name of a primitive, a struct class, or a list with one of these: an array."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Field:
    """One field of a message: its type, the versions that have it, and its default in other versions."""

    name: str
    type: WireType
    since: int
    until: int
    null_since: int
    null_until: int
    default: Any
    tag: int | None
    ignorable: bool
    flexible: bool

    @property
    def is_array(self) -> bool:
        return isinstance(self.type, list)

    @property
    def is_struct(self) -> bool:
        return isinstance(self.type, type)

    def exists_in(self, version: int) -> bool:
        return self.since <= version < self.until

    def may_be_null_in(self, version: int) -> bool:
        return self.null_since <= version < self.null_until


def wire(
    of: WireType,
    *,
    since: int = 0,
    until: int = NEVER,
    null_since: int = NEVER,
    null_until: int = NEVER,
    default: Any = NO_DEFAULT,
    tag: int | None = None,
    ignorable: bool = False,
    flexible: bool = True,
) -> Any:
    """Describe a field of a message class.

    A tagged struct that is not there is `None`, so that the three optional structs of every fetched
    partition cost nothing. `flexible=False` keeps the legacy encoding in flexible versions.
    """
    if default is NO_DEFAULT:
        default = _default_of(of, tagged=tag is not None)
    return _WireField(
        default,
        {
            "type": of,
            "since": since,
            "until": until,
            "null_since": null_since,
            "null_until": null_until,
            "default": default,
            "tag": tag,
            "ignorable": ignorable,
            "flexible": flexible,
        },
    )


class _WireField(NamedTuple):
    """The declaration of a field by `wire`, until `message` creates the class."""

    default: Any
    settings: dict[str, Any]


@dataclass_transform(kw_only_default=True)
def message(described: type[T]) -> type[T]:
    """Make a struct of a class whose fields are described by `wire`. msgspec's are made in C: an agent has hundreds of
    these classes when it starts, and thousands of their objects in a request."""
    facts = {name: value for name, value in vars(described).items() if name not in _NOT_COPIED}
    fields = {name: value for name, value in facts.items() if isinstance(value, _WireField)}
    made = defstruct(
        described.__name__,
        [(name, Any, _msgspec_field(value.default)) for name, value in fields.items()],
        bases=(*(base for base in described.__bases__ if base is not object), Struct),
        module=described.__module__,
        namespace={name: value for name, value in facts.items() if name not in fields},
        kw_only=True,
    )
    _WIRE_FIELDS[made] = {name: value.settings for name, value in fields.items()}
    return made  # type: ignore[return-value]


_NOT_COPIED: Final = frozenset({"__annotations__", "__dict__", "__weakref__", "__module__", "__slots__"})
_WIRE_FIELDS: Final[dict[type, dict[str, dict[str, Any]]]] = {}


def _msgspec_field(default: Any) -> Any:
    if isinstance(default, list | type):
        return field(default_factory=list if isinstance(default, list) else default)
    return field(default=default)


def _default_of(of: WireType, *, tagged: bool) -> Any:
    """Kafka's default of a type; the default of a struct is its class, which is called for every message."""
    if isinstance(of, list):
        return []
    if isinstance(of, type):
        return None if tagged else of
    return _DEFAULTS.get(of, 0)


def fields_of(struct: type) -> tuple[Field, ...]:
    """The fields of a message or of a struct inside one, in the order of the wire."""
    return tuple(Field(name=name, **settings) for name, settings in _WIRE_FIELDS.get(struct, {}).items())


class Message:
    """Base class of top-level messages."""

    __slots__ = ()
    name: ClassVar[str]
    min_version: ClassVar[int]
    max_version: ClassVar[int]
    flexible_since: ClassVar[int]


class Request(Message):
    __slots__ = ()
    api_key: ClassVar[int]
    response_class: ClassVar[type["Response"]]

    @classmethod
    def header_version(cls, version: int) -> int:
        return 2 if version >= cls.flexible_since else 1


class Response(Message):
    __slots__ = ()
    api_key: ClassVar[int]

    @classmethod
    def header_version(cls, version: int) -> int:
        # A client decodes the response to ApiVersions before it knows the served versions, so its header stays v0.
        return 1 if version >= cls.flexible_since and cls.api_key != API_VERSIONS_KEY else 0
