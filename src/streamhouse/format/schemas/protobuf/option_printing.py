"""Option printing: the options of anything in a file as assignments.

Data path   options that were understood -> **option printing** -> `printing`
Owns        names of custom options, one assignment for every value, aggregates in braces; the order (by number)
Leaves      brackets and statements to `printing`; aggregates to the text format of the Protobuf library
"""

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from google.protobuf import text_format
from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.descriptor_pool import DescriptorPool
from google.protobuf.message import DecodeError, Message

from streamhouse.format.schemas.protobuf.classes import message_class
from streamhouse.format.schemas.protobuf.options import float_text
from streamhouse.format.schemas.protobuf.tokens import quoted


@dataclass(frozen=True)
class OptionPrinter:
    """Prints options by what one schema's pool knows."""

    pool: DescriptorPool

    def bracketed(self, owner: Any, *, special: Iterable[str] = ()) -> str:
        """` [a = 1, b = 2]`, or nothing when there is nothing to say."""
        options = [*special, *self.assignments(owner)]
        return f" [{', '.join(options)}]" if options else ""

    def assignments(self, owner: Any) -> list[str]:
        """`name = value` for all options of a message, a field, ...; what belongs to the syntax of maps is left out."""
        if not owner.HasField("options"):
            return []
        options = self._known(owner.options)
        return [each for field, value in options.ListFields() for each in self._assignments("", field, value)]

    def _known(self, options: Message) -> Message:
        """The same options, with the custom ones understood as far as the schema's imports define them."""
        if not self._knows_options:
            return options
        try:
            known: Message = message_class(self.pool.FindMessageTypeByName(options.DESCRIPTOR.full_name))()
            known.ParseFromString(options.SerializeToString())
        except (KeyError, DecodeError):
            return options
        return known

    @cached_property
    def _knows_options(self) -> bool:
        try:
            self.pool.FindFileByName("google/protobuf/descriptor.proto")
        except KeyError:
            return False
        return True

    def _assignments(self, prefix: str, field: FieldDescriptor, value: Any) -> Iterable[str]:
        name = f"{prefix}(.{field.full_name})" if field.is_extension else f"{prefix}{field.name}"
        if name == "uninterpreted_option":
            return
        if name == "features":
            # Of these some may be set by hand only one by one.
            for inner, inner_value in value.ListFields():
                yield from self._assignments(f"{name}.", inner, inner_value)
            return
        for each in _each(field, value):
            yield f"{name} = {self._value(field, each)}"

    def _value(self, field: FieldDescriptor, value: Any) -> str:
        if field.message_type is not None:
            text = text_format.MessageToString(value, as_one_line=True)
            return f"{{ {text} }}" if text else "{ }"
        if field.enum_type is not None:
            known = field.enum_type.values_by_number.get(value)
            return str(value) if known is None else known.name
        if field.type == FieldDescriptor.TYPE_BOOL:
            return "true" if value else "false"
        if field.type == FieldDescriptor.TYPE_STRING:
            return quoted(value.encode())
        if field.type == FieldDescriptor.TYPE_BYTES:
            return quoted(value)
        if field.type in (FieldDescriptor.TYPE_FLOAT, FieldDescriptor.TYPE_DOUBLE):
            return float_text(value, single=field.type == FieldDescriptor.TYPE_FLOAT)
        return str(value)


def _each(field: FieldDescriptor, value: Any) -> Iterable[Any]:
    """Every value of a field that may have many; a map is read as the entries it is written as."""
    if not field.is_repeated:
        return [value]
    entry = field.message_type
    if entry is None or not entry.GetOptions().map_entry:
        return list(value)
    entry_class: Any = message_class(entry)
    is_message = entry.fields_by_name["value"].message_type is not None
    entries = []
    for key in sorted(value):
        made = entry_class(key=key)
        made.value.CopyFrom(value[key]) if is_message else setattr(made, "value", value[key])
        entries.append(made)
    return entries
