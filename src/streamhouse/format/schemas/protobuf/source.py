"""Source: one .proto text while it is read, and where in it everything was defined.

Data path   tokens -> **source** -> `statements` and `definitions` fill its file; `linking` asks it for places
Owns        the file that grows, its edition, the places of names
Leaves      the grammar to `statements` (files, services) and `definitions` (messages, enums)
"""

from dataclasses import dataclass, field
from typing import Final, NoReturn

from google.protobuf.descriptor_pb2 import FileDescriptorProto

from streamhouse.errors import InvalidSchema
from streamhouse.format.schemas.protobuf.names import MAX_FULL_NAME, joined
from streamhouse.format.schemas.protobuf.tokens import Cursor

MAX_REASON: Final = 400
"""Letters of a complaint: some quote what they complain about, which may be a whole text."""


@dataclass(slots=True, kw_only=True)
class Source:
    """A file under construction. Places are kept by name inside the file: the package may come late."""

    file: FileDescriptorProto
    cursor: Cursor | None = None
    name: str = ""
    starts: dict[str, int] = field(default_factory=dict)

    @property
    def is_proto3(self) -> bool:
        return self.file.syntax == "proto3"

    @property
    def has_editions(self) -> bool:
        return self.file.syntax == "editions"

    def mark(self, scope: str, name: str, start: int) -> None:
        """Remember where a name was defined; of two equal ones the second is the one to complain about."""
        local = joined(scope, name)
        if self.cursor is not None and len(local) > MAX_FULL_NAME:
            self.cursor.fail(f"the full name is too long; limit={MAX_FULL_NAME}", at=start)
        self.starts[local] = start

    def place(self, local: str) -> str:
        """Where a name was defined: line and column of a text, the name itself of a descriptor."""
        if self.cursor is not None and local in self.starts:
            return self.cursor.place(self.starts[local])
        return f"{self.name}{local}"

    def fail(self, why: str, local: str) -> NoReturn:
        """Refuse the file for what stands under this name."""
        raise InvalidSchema(why[:MAX_REASON], path=self.place(local)[:MAX_REASON])
