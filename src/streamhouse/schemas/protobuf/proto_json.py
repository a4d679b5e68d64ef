"""Protobuf's JSON mapping: messages to JSON-like values and back, by a plan compiled once per message type.

Types with a JSON mapping of their own, and extensions, are left to the Protobuf library; single values to
`proto_json_scalars`.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final

from google.protobuf import json_format
from google.protobuf.descriptor import Descriptor, FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import Error as MessageError

from streamhouse.errors import InvalidRecordValue
from streamhouse.schemas.protobuf.proto_json_scalars import NULL_VALUE, into, into_key, kind_of, out, out_key

MAX_VALUE_DEPTH: Final = 100
"""Maximum nesting of messages in one record, the same as in the native library."""

_OWN_FORM: Final = frozenset(
    f"google.protobuf.{name}"
    for name in (
        "Any", "Duration", "FieldMask", "ListValue", "Struct", "Timestamp", "Value", "BoolValue", "BytesValue",
        "DoubleValue", "FloatValue", "Int32Value", "Int64Value", "StringValue", "UInt32Value", "UInt64Value",
    )
)  # fmt: skip
_TAKES_NULL: Final = frozenset((NULL_VALUE, "google.protobuf.Value"))

# `Any` holds messages in messages, which the library reads and writes on the way.
_LIBRARY_ERRORS: Final = (MessageError, ValueError, TypeError, OverflowError, RecursionError)

Fill = Callable[[Any, Any, int], None]
"""Writes a JSON value into a message or one of its fields; the last argument is the depth."""
Read = Callable[[Any], Any]


class FieldError(Exception):
    """A value that doesn't match its field; each caller prepends its part of the path."""

    def __init__(self, reason: str, *steps: str | int) -> None:
        super().__init__(reason)
        self.reason = reason
        self.steps = list(steps)

    def within(self, *steps: str | int) -> "FieldError":
        self.steps[:0] = steps
        return self

    def as_error(self) -> InvalidRecordValue:
        return InvalidRecordValue(self.reason[:400], path="/" + "/".join(map(str, self.steps)))


class Forms:
    """The plans of all message types of one schema; each is created with the first value of its type."""

    def __init__(self, pool: DescriptorPool) -> None:
        self.pool = pool
        self._by_name: dict[str, MessageForm] = {}

    def of(self, message: Descriptor) -> "MessageForm":
        form = self._by_name.get(message.full_name)
        if form is None:
            form = self._by_name[message.full_name] = MessageForm(message, self)
        return form


class MessageForm:
    """How one message type is encoded and decoded; the plan is computed on first use.

    Not earlier, because fields have message types with fields: a long chain of them would overflow the stack.
    """

    __slots__ = ("_by_name", "_fields", "_forms", "_message", "fill", "read")

    def __init__(self, message: Descriptor, forms: Forms) -> None:
        self._message, self._forms = message, forms
        self._by_name: dict[str, _FieldForm] = {}
        self._fields: list[_FieldForm] = []
        self.fill: Fill = self._first_fill
        self.read: Read = self._first_read

    def _first_fill(self, message: Any, value: Any, depth: int) -> None:
        self._plan()
        self.fill(message, value, depth)

    def _first_read(self, message: Any) -> Any:
        self._plan()
        return self.read(message)

    def _plan(self) -> None:
        """Look at all fields once. Types with a form of their own, and those with extensions, are the library's."""
        message, forms = self._message, self._forms
        if message.full_name in _OWN_FORM or message.is_extendable:
            self.fill, self.read = _library_fill(forms.pool), _library_read(forms.pool)
            return
        fields = [_FieldForm(field, forms) for field in message.fields]
        # If the name of one field is the JSON name of another, the JSON name wins.
        self._by_name = {form.name: form for form in fields} | {form.json_name: form for form in fields}
        self._fields = fields
        self.fill, self.read = self._fill, self._read

    def _fill(self, message: Any, value: Any, depth: int) -> None:
        if not isinstance(value, dict):
            raise FieldError(f"an object is expected, not {kind_of(value)}")
        if depth > MAX_VALUE_DEPTH:
            raise FieldError(f"nested too deeply; limit={MAX_VALUE_DEPTH}")
        chosen: dict[str, str] = {}
        for key, each in value.items():
            field = self._by_name.get(key)
            if field is None:
                raise FieldError(f"{self._message.full_name} has no such field", str(key)[:200])
            if key != field.json_name and field.json_name in value:
                raise FieldError("the field is given under two names", key)
            if each is None and not field.takes_null:
                continue
            if field.oneof is not None and chosen.setdefault(field.oneof, field.name) != field.name:
                raise FieldError("another field of the same oneof is set", key)
            try:
                field.fill(message, each, depth)
            except FieldError as error:
                raise error.within(key) from None
            except (ValueError, TypeError) as error:
                raise FieldError(str(error), key) from None

    def _read(self, message: Any) -> dict[str, Any]:
        has = message.HasField
        return {
            field.json_name: field.read(getattr(message, field.name)) if field.read else getattr(message, field.name)
            for field in self._fields
            if not field.has_presence or has(field.name)
        }


class _FieldForm:
    """How one field is filled and read."""

    __slots__ = ("fill", "has_presence", "json_name", "name", "oneof", "read", "takes_null")

    def __init__(self, field: FieldDescriptor, forms: Forms) -> None:
        self.name, self.json_name = field.name, field.json_name
        self.has_presence = field.has_presence
        oneof = field.containing_oneof
        # A oneof of one field is the synthetic one of `optional`, and excludes nothing.
        self.oneof = None if oneof is None or len(oneof.fields) == 1 else oneof.name
        kind = field.enum_type or field.message_type
        self.takes_null = kind is not None and kind.full_name in _TAKES_NULL and not field.is_repeated
        self.fill: Fill
        self.read: Read | None
        if field.message_type is not None and field.message_type.GetOptions().map_entry:
            self.fill, self.read = _map(field.name, field.message_type, forms)
        elif field.is_repeated:
            self.fill, self.read = _list(field, forms)
        elif field.message_type is not None:
            self.fill, self.read = _single_message(field, forms)
        else:
            self.fill, self.read = _single_scalar(field), out(field)


def _single_scalar(field: FieldDescriptor) -> Fill:
    name, convert = field.name, into(field)

    def fill(message: Any, value: Any, depth: int) -> None:
        setattr(message, name, convert(value))

    return fill


def _single_message(field: FieldDescriptor, forms: Forms) -> tuple[Fill, Read]:
    assert field.message_type is not None
    name, form = field.name, forms.of(field.message_type)

    def fill(message: Any, value: Any, depth: int) -> None:
        inner = getattr(message, name)
        inner.SetInParent()
        form.fill(inner, value, depth + 1)

    def read(inner: Any) -> Any:
        return form.read(inner)

    return fill, read


def _list(field: FieldDescriptor, forms: Forms) -> tuple[Fill, Read]:
    name = field.name
    if field.message_type is not None:
        return _list_of_messages(name, forms.of(field.message_type))
    convert, back = into(field), out(field)

    def fill(message: Any, value: Any, depth: int) -> None:
        getattr(message, name).extend(_each(value, convert))

    def read(values: Any) -> list[Any]:
        return list(values) if back is None else [back(value) for value in values]

    return fill, read


def _list_of_messages(name: str, form: MessageForm) -> tuple[Fill, Read]:
    def fill(message: Any, value: Any, depth: int) -> None:
        container = getattr(message, name)
        _each(value, lambda item: form.fill(container.add(), item, depth + 1))

    def read(values: Any) -> list[Any]:
        return [form.read(value) for value in values]

    return fill, read


def _each(value: Any, convert: Callable[[Any], Any]) -> list[Any]:
    if not isinstance(value, list):
        raise FieldError(f"an array is expected, not {kind_of(value)}")
    converted = []
    for at, item in enumerate(value):
        try:
            converted.append(convert(item))
        except FieldError as error:
            raise error.within(at) from None
        except (ValueError, TypeError) as error:
            raise FieldError(str(error), at) from None
    return converted


def _map(name: str, entry: Descriptor, forms: Forms) -> tuple[Fill, Read]:
    key_field, value_field = entry.fields_by_name["key"], entry.fields_by_name["value"]
    key_into, key_out = into_key(key_field), out_key(key_field)
    form = None if value_field.message_type is None else forms.of(value_field.message_type)
    value_into = None if form is not None else into(value_field)
    value_out = None if form is not None else out(value_field)

    def put(target: Any, key: Any, value: Any, depth: int) -> None:
        if value_into is not None:
            target[key_into(key)] = value_into(value)
        else:
            assert form is not None
            form.fill(target[key_into(key)], value, depth + 1)

    def fill(message: Any, value: Any, depth: int) -> None:
        if not isinstance(value, dict):
            raise FieldError(f"an object is expected, not {kind_of(value)}")
        target = getattr(message, name)
        for key, each in value.items():
            try:
                put(target, key, each, depth)
            except FieldError as error:
                raise error.within(key) from None
            except (ValueError, TypeError) as error:
                raise FieldError(str(error), str(key)) from None

    def read(entries: Mapping[Any, Any]) -> dict[str, Any]:
        back = value_out if form is None else form.read
        if back is None:
            return {key_out(key): value for key, value in entries.items()}
        return {key_out(key): back(value) for key, value in entries.items()}

    return fill, read


def _library_fill(pool: DescriptorPool) -> Fill:
    def fill(message: Any, value: Any, depth: int) -> None:
        try:
            json_format.ParseDict(
                value, message, descriptor_pool=pool, max_recursion_depth=max(MAX_VALUE_DEPTH - depth, 1)
            )
        except (*_LIBRARY_ERRORS, json_format.ParseError, AttributeError) as error:
            raise FieldError(str(error)) from None

    return fill


def _library_read(pool: DescriptorPool) -> Read:
    def read(message: Any) -> Any:
        try:
            return json_format.MessageToDict(message, always_print_fields_with_no_presence=True, descriptor_pool=pool)
        except (*_LIBRARY_ERRORS, json_format.SerializeToJsonError) as error:
            raise FieldError(str(error)) from None

    return read
