"""Builtin: the files that every schema may import without registering them.

Data path   an import that no reference has -> **builtin** -> `files`
Owns        Protobuf's well-known types, as its library has them; which names are known at all
Leaves      the texts of dates, money and the like to `common_types`; everything else to a schema's references
"""

from functools import cache
from typing import Final

from google.protobuf import (
    any_pb2,
    api_pb2,
    descriptor_pb2,
    duration_pb2,
    empty_pb2,
    field_mask_pb2,
    source_context_pb2,
    struct_pb2,
    timestamp_pb2,
    type_pb2,
    wrappers_pb2,
)
from google.protobuf.descriptor_pb2 import FileDescriptorProto

from streamhouse.format.schemas.protobuf.common_types import COMMON_TYPES

_LIBRARY: Final = {
    module.DESCRIPTOR.name: module.DESCRIPTOR
    for module in (
        any_pb2, api_pb2, descriptor_pb2, duration_pb2, empty_pb2, field_mask_pb2, source_context_pb2, struct_pb2,
        timestamp_pb2, type_pb2, wrappers_pb2,
    )
}  # fmt: skip


@cache
def library_file(name: str) -> FileDescriptorProto | None:
    """A well-known file as the library has it; these stay as they are, whatever a reference says."""
    if name not in _LIBRARY:
        return None
    file = FileDescriptorProto()
    file.ParseFromString(_LIBRARY[name].serialized_pb)
    return file


def builtin_text(name: str) -> str | None:
    """A file that takes the place of a reference nobody gave."""
    return COMMON_TYPES.get(name)
