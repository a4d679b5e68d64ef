"""File parser: a whole .proto text to a file descriptor with unresolved names.

Knows the grammar of a file: syntax, package, imports, options, services.
"""

from typing import Final

from google.protobuf.descriptor_pb2 import Edition, FileDescriptorProto, MethodDescriptorProto, ServiceDescriptorProto

from streamhouse.schemas.protobuf.definition_parser import read_enum, read_extend, read_message
from streamhouse.schemas.protobuf.descriptors import Source, join_names
from streamhouse.schemas.protobuf.lexer import Cursor, Kind
from streamhouse.schemas.protobuf.option_parser import option_statement

MAX_IMPORTS: Final = 1_000
_EDITIONS: Final = {"2023": Edition.EDITION_2023}


def read_text(text: str, *, name: str, where: str = "") -> Source:
    """Parse a text; `where` precedes line and column in error texts."""
    cursor = Cursor(text, source=where)
    source = Source(file=FileDescriptorProto(name=name), cursor=cursor, name=where)
    _read_syntax(source, cursor)
    while cursor.token.kind is not Kind.END:
        _read_statement(source, cursor)
    return source


def _read_syntax(source: Source, cursor: Cursor) -> None:
    if cursor.is_next("syntax"):
        cursor.take()
        cursor.expect("=")
        start = cursor.token.start
        syntax = cursor.text_string("'proto2' or 'proto3'")
        if syntax not in ("proto2", "proto3"):
            cursor.fail(f"unknown syntax {syntax[:40]!r}, expected 'proto2' or 'proto3'", at=start)
        # proto2 is what a descriptor without a syntax has, and protoc leaves it out.
        if syntax == "proto3":
            source.file.syntax = syntax
        cursor.expect(";")
    elif cursor.is_next("edition"):
        cursor.take()
        cursor.expect("=")
        start = cursor.token.start
        edition = cursor.text_string("an edition")
        if edition not in _EDITIONS:
            cursor.fail(f"unknown edition {edition[:40]!r}, known: {', '.join(_EDITIONS)}", at=start)
        source.file.syntax = "editions"
        source.file.edition = _EDITIONS[edition]
        cursor.expect(";")


def _read_statement(source: Source, cursor: Cursor) -> None:
    file = source.file
    match cursor.token.text:
        case ";":
            cursor.take()
        case "import":
            _read_import(file, cursor)
        case "package":
            _read_package(file, cursor)
        case "option":
            file.options.uninterpreted_option.append(option_statement(cursor))
        case "message":
            read_message(source, cursor, file.message_type.add(), "", 1)
        case "enum":
            read_enum(source, cursor, file.enum_type.add(), "")
        case "extend":
            read_extend(source, cursor, file.extension, file.message_type, "", 0)
        case "service":
            _read_service(source, cursor, file.service.add())
        case "syntax" | "edition":
            cursor.fail(f"{cursor.token.text!r} must be the first statement")
        case _:
            cursor.expected("a message, an enum, an import or another statement of a file")


def _read_import(file: FileDescriptorProto, cursor: Cursor) -> None:
    cursor.expect("import")
    public = cursor.accept("public")
    weak = not public and cursor.accept("weak")
    path = cursor.text_string("the file to import")
    cursor.expect(";")
    if path in file.dependency:
        return
    index = len(file.dependency)
    if index >= MAX_IMPORTS:
        cursor.fail(f"too many imports; limit={MAX_IMPORTS}")
    file.dependency.append(path)
    if public:
        file.public_dependency.append(index)
    if weak:
        file.weak_dependency.append(index)


def _read_package(file: FileDescriptorProto, cursor: Cursor) -> None:
    if file.HasField("package"):
        cursor.fail("a file has one package")
    cursor.expect("package")
    start = cursor.token.start
    file.package = cursor.path("the package's name")
    if file.package.startswith("."):
        cursor.fail("a package's name begins with a letter", at=start)
    cursor.expect(";")


def _read_service(source: Source, cursor: Cursor, service: ServiceDescriptorProto) -> None:
    cursor.expect("service")
    start = cursor.token.start
    service.name = cursor.name("the service's name")
    source.mark("", service.name, start)
    cursor.expect("{")
    while not cursor.accept("}"):
        if cursor.is_next("option"):
            service.options.uninterpreted_option.append(option_statement(cursor))
        elif not cursor.accept(";"):
            _read_method(source, cursor, service.method.add(), service.name)


def _read_method(source: Source, cursor: Cursor, method: MethodDescriptorProto, service: str) -> None:
    if not cursor.is_next("rpc"):
        cursor.expected("'rpc', or '}'")
    cursor.take()
    start = cursor.token.start
    method.name = cursor.name("the method's name")
    source.mark(service, join_names("", method.name), start)
    method.input_type, streams_in = _method_type(cursor)
    cursor.expect("returns")
    method.output_type, streams_out = _method_type(cursor)
    if streams_in:
        method.client_streaming = True
    if streams_out:
        method.server_streaming = True
    _read_method_end(cursor, method)


def _method_type(cursor: Cursor) -> tuple[str, bool]:
    cursor.expect("(")
    streams = cursor.accept("stream")
    name = cursor.path("a message type")
    cursor.expect(")")
    return name, streams


def _read_method_end(cursor: Cursor, method: MethodDescriptorProto) -> None:
    if not cursor.is_next("{"):
        cursor.expect(";")
        return
    cursor.take()
    # protoc writes options for a method with braces even when there is nothing in them.
    method.options.SetInParent()
    while not cursor.accept("}"):
        if not cursor.accept(";"):
            method.options.uninterpreted_option.append(option_statement(cursor))
