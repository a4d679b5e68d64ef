"""A .proto text is read as protoc reads it, or refused with the place and the reason."""

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from streamhouse.errors import InvalidSchema
from streamhouse.schemas.protobuf import parse


def read(text: str, **references: str) -> FileDescriptorProto:
    return parse(text, {f"{name}.proto": other for name, other in references.items()}).files.main


def refusal(text: str, **references: str) -> tuple[str, str]:
    with pytest.raises(InvalidSchema) as caught:
        read(text, **references)
    return caught.value.path, caught.value.reason


def test_a_text_without_a_syntax_is_proto2() -> None:
    assert read("message A { optional int32 n = 1; }").syntax == ""


def test_comments_are_passed_over_wherever_they_stand() -> None:
    plain = read('syntax = "proto3"; message A { int32 n = 1; }')
    assert read('/* a */ syntax /**/ = "proto3"; // b\nmessage A { /* ** / */ int32 n = 1; } // end') == plain


def test_adjacent_strings_are_one_and_escapes_are_letters() -> None:
    file = read(r"""option java_package = "a\x41\101" 'b\n\u00e9'; message A {}""")
    assert file.options.java_package == "aAAb\né"


def test_a_map_is_a_repeated_message_named_after_the_field() -> None:
    message = read('syntax = "proto3"; message A { map<string, int32> by_name = 1; }').message_type[0]
    assert message.nested_type[0].name == "ByNameEntry"
    assert message.nested_type[0].options.map_entry
    assert message.field[0].label == FieldDescriptorProto.LABEL_REPEATED
    assert message.field[0].type_name == ".A.ByNameEntry"


def test_an_optional_field_of_proto3_stands_in_a_oneof_behind_the_others() -> None:
    text = 'syntax = "proto3"; message A { optional int32 n = 1; oneof which { int32 a = 2; } }'
    message = read(text).message_type[0]
    assert [oneof.name for oneof in message.oneof_decl] == ["which", "_n"]
    assert message.field[0].proto3_optional


def test_a_group_is_a_field_and_a_message() -> None:
    message = read("message A { optional group Inner = 1 { required int32 n = 2; } }").message_type[0]
    assert (message.field[0].name, message.field[0].type_name) == ("inner", ".A.Inner")
    assert message.field[0].type == FieldDescriptorProto.TYPE_GROUP


def test_a_type_is_looked_for_from_the_innermost_scope_outwards() -> None:
    text = """
        package a.b;
        message Thing {}
        message Outer { message Thing {} optional Thing n = 1; optional b.Thing m = 2; optional .a.b.Thing t = 3; }
    """
    names = [field.type_name for field in read(text).message_type[1].field]
    assert names == [".a.b.Outer.Thing", ".a.b.Thing", ".a.b.Thing"]


def test_the_first_part_of_a_name_hides_what_is_further_out() -> None:
    text = "package a.b; message X {} message a { optional a.b.X x = 1; }"
    assert "no message or enum" in refusal(text)[1]


def test_only_public_imports_are_seen_through_an_import() -> None:
    deep = "package deep; message D {}"
    private = {"deep": deep, "mid": 'import "deep.proto";'}
    public = {"deep": deep, "mid": 'import public "deep.proto";'}
    text = 'import "mid.proto"; message A { optional deep.D d = 1; }'
    assert read(text, **public).message_type[0].field[0].type_name == ".deep.D"
    assert "'deep.D' is no message" in refusal(text, **private)[1]


def test_well_known_types_need_no_reference() -> None:
    text = 'import "google/protobuf/timestamp.proto"; message A { optional google.protobuf.Timestamp at = 1; }'
    assert read(text).message_type[0].field[0].type_name == ".google.protobuf.Timestamp"


def test_options_are_understood_and_custom_ones_found_by_scope() -> None:
    text = """
        package a;
        import "google/protobuf/descriptor.proto";
        message Rule { optional int32 most = 1; repeated string words = 2; }
        extend google.protobuf.FieldOptions { optional Rule rule = 50000; optional bool secret = 50001; }
        message M {
          optional string s = 1 [deprecated = true, (rule) = { most: 5 words: ["x", "y"] }, (a.secret) = true];
          optional string t = 2 [(rule).most = 7];
        }
    """
    schema = parse(text, {})
    assert schema.files.main.message_type[1].field[0].options.deprecated
    canonical = schema.canonical()
    assert '(.a.rule) = { most: 5 words: "x" words: "y" }, (.a.secret) = true' in canonical
    assert "(.a.rule) = { most: 7 }" in canonical


def test_edition_2023_sets_presence_by_a_feature() -> None:
    text = 'edition = "2023"; option features.field_presence = IMPLICIT; message A { int32 n = 1; reserved b; }'
    file = read(text)
    assert file.syntax == "editions"
    assert list(file.message_type[0].reserved_name) == ["b"]


def test_services_and_their_streams_are_read() -> None:
    text = (
        "message A {} service S { rpc Go (stream A) returns (A) { option deprecated = true; } rpc B (A) returns (A); }"
    )
    method = read(text).service[0].method[0]
    assert (method.client_streaming, method.server_streaming, method.options.deprecated) == (True, False, True)


@pytest.mark.parametrize(
    ("text", "path", "reason"),
    [
        ("", "/", "the text is empty"),
        ("message A {", "1:12", "expected '}', got the end of the text"),
        ("message A {\n  int32 n = 1;\n}", "2:3", "expected 'optional', 'required' or 'repeated', got 'int32'"),
        ('syntax = "proto4";', "1:10", "unknown syntax 'proto4', expected 'proto2' or 'proto3'"),
        ("message A { optional int32 n = 0; }", "1:32", "the field's number is out of range: 1 to 536870911"),
        ("message A { optional int32 n 1; }", "1:30", "expected '=', got '1'"),
        ("message A { optional int32 n = 19000; }", "1:28", "numbers 19000 to 19999 belong to Protobuf itself"),
        ("message A { optional int32 n = 1; optional int32 m = 1; }", "1:50", "number 1 belongs to 'n' already"),
        ("message A { optional int32 n = 1; optional int32 n = 2; }", "1:50", "'A.n' is defined twice"),
        ("message A {} message A {}", "1:22", "'A' is defined twice"),
        ("message A { reserved 1 to 3; optional int32 n = 2; }", "1:45", "number 2 is reserved, or set aside for"),
        ('message A { reserved "n"; optional int32 n = 2; }', "1:42", "the name 'n' is reserved"),
        ("message A { optional Nope n = 1; }", "1:27", "'Nope' is no message or enum that this file can see"),
        ("message A { oneof o { } }", "1:19", "a oneof has at least one field"),
        ("enum E { }", "1:6", "an enum has at least one value"),
        ("enum E { A = 1; B = 1; }", "1:17", "number 1 belongs to 'A' already"),
        ('syntax = "proto3"; enum E { A = 1; }', "1:29", "the first value of an enum in proto3 is zero"),
        ('syntax = "proto3"; message A { required int32 n = 1; }', "1:32", "required fields are for proto2"),
        ("message A { optional int32 n = 1 [default = 1x]; }", "1:46", "a number must be followed by"),
        ("message A { optional int32 n = 1 [default = 4294967296]; }", "1:45", "the default is out of range"),
        ("message A { optional int32 n = 1 [depricated = true]; }", "1:28", "option depricated is not defined here"),
        ("message A { optional int32 n = 1 [(x) = true]; }", "1:28", "option (x) is not defined"),
        ('option java_package = "a', "1:23", "unexpected string without an end on its line"),
        ("/* message", "1:1", "unexpected comment without an end"),
        ("message A { extensions 4 to max; } extend A { optional int32 x = 3; }", "1:62", "'A' has no room for"),
        ('import "other.proto"; message A {}', "/", "import 'other.proto' is neither a reference nor known"),
        ('edition = "2099"; message A {}', "1:11", "unknown edition '2099', known: 2023"),
        ('syntax = "proto3"; message A { int32 a_b = 1; int32 aB = 2; }', "1:53", "in JSON the field has the same"),
    ],
)
def test_what_is_wrong_is_said_with_its_place(text: str, path: str, reason: str) -> None:
    got_path, got_reason = refusal(text)
    assert got_path == path
    assert reason in got_reason


def test_a_mistake_in_a_reference_names_the_file() -> None:
    path, _ = refusal('import "other.proto"; message A {}', other="message B {\n  oops\n}")
    assert path == "other.proto: 2:3"


def test_files_that_import_each_other_are_refused() -> None:
    references = {"a": 'import "b.proto";', "b": 'import "a.proto";'}
    assert "imports itself" in refusal('import "a.proto"; message M {}', **references)[1]
