"""Classes: the native class of a message type.

Owns        making one class at a time
Leaves      the classes of a message's fields to the native library, which makes each when it is first touched
"""

from typing import Any, Final

from google.protobuf.descriptor import Descriptor
from google.protobuf.descriptor_pb2 import FileDescriptorProto
from google.protobuf.message import Message

_MESSAGE_META: Final[Any] = type(FileDescriptorProto)


def message_class(message: Descriptor) -> Any:
    """The class, made once for each descriptor.

    The library's own `GetMessageClass` makes those of all fields as well, and of their fields: a long chain of types
    overflows its stack.
    """
    return _MESSAGE_META(message.name, (Message,), {"DESCRIPTOR": message, "__module__": None})
