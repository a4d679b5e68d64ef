"""protoc, which wrote the rules, makes the same descriptors of the same texts, and refuses the same ones."""

from functools import cache
from pathlib import Path

import grpc_tools
import pytest
from google.protobuf.descriptor_pb2 import FileDescriptorProto, FileDescriptorSet
from grpc_tools import protoc

from streamhouse.errors import InvalidSchema
from streamhouse.schemas.protobuf import ProtobufSchema, parse
from streamhouse.schemas.protobuf.descriptors import message_class

SHIPPED = Path(grpc_tools.__file__).parent / "_proto"
COMMON = """
    syntax = "proto3";
    package common.v1;
    import public "google/protobuf/timestamp.proto";
    message Money { string currency = 1; int64 units = 2; }
    enum Level { LOW = 0; HIGH = 1; }
"""
ACCEPTED = {
    "proto3": """
        syntax = "proto3";
        package shop.v1;
        import "common.proto";
        import "google/protobuf/struct.proto";
        option java_package = "com.shop"; option optimize_for = CODE_SIZE; option go_package = "a;b";
        message Order {
          reserved 100, 200 to 300, 400 to max; reserved "gone", "left";
          string id = 1; optional int32 n = 2; optional int32 _n = 20; repeated int32 packed = 3 [packed = false];
          map<string, common.v1.Money> prices = 4; map<int32, common.v1.Level> levels_by_id = 5;
          oneof how { string card = 6; common.v1.Money cash = 7 [json_name = "CASH"]; }
          google.protobuf.Timestamp at = 8; .google.protobuf.Value extra = 9; Line.Kind kind = 10;
          message Line {
            Order order = 1;
            enum Kind { option allow_alias = true; A = 0; B = 1; C = 1 [deprecated = true]; }
          }
          repeated Line lines = 11 [deprecated = true, json_name = "L"]; double d = 12; sfixed64 s = 13;
        }
        service Shop {
          option deprecated = true;
          rpc Buy (Order) returns (stream common.v1.Money) { option idempotency_level = IDEMPOTENT; ; }
          rpc Sell (stream .shop.v1.Order) returns (Order) {}
        }
    """,
    "proto2": r"""
        package old;
        message Base { extensions 10 to 20, 1000 to max; optional Base inner = 1; }
        message All {
          required int32 r = 1 [default = -0x10]; optional uint64 u = 2 [default = 0xFFFFFFFFFFFFFFFF];
          optional int64 o = 3 [default = -0777]; optional float f = 4 [default = 2e8];
          optional float g = 5 [default = -inf];
          optional double d = 6 [default = 1.7976931348623157e308]; optional double e = 7 [default = .1];
          optional string s = 8 [default = "tab\t quote\" \x41\101 \u00e9 'x'" ' y'];
          optional bytes b = 9 [default = "\0\377\n\"'"];
          optional bool t = 10 [default = true]; optional E en = 11 [default = TWO];
          repeated group Many = 12 { required int32 n = 1; }
          oneof which { group One = 13 { optional All a = 1; } int32 other = 14; }
          extend Base { optional All in_base = 10; repeated group Ext = 11 { optional int32 n = 1; } }
          reserved 50 to 60; extensions 500 to 600;
        }
        enum E { ONE = 1; TWO = 2; NEG = -1; HEX = 0x7fffffff; reserved -9 to -5, 100 to 200; reserved "OLD"; }
        extend Base { optional int32 outer = 1000; }
        message Set { option message_set_wire_format = true; extensions 4 to max; }
        extend Set { optional All in_set = 4; }
    """,
    "options": """
        syntax = "proto3";
        package opt;
        import "google/protobuf/descriptor.proto";
        message Rule {
          int32 most = 1; repeated string words = 2; Rule inner = 3; map<string, int64> by = 4; double d = 5;
        }
        enum Mode { OFF = 0; ON = 1; }
        extend google.protobuf.FieldOptions {
          Rule rule = 50000; repeated int32 nums = 50001; Mode mode = 50002; bytes raw = 50003;
        }
        extend google.protobuf.MessageOptions { float ratio = 50000; bool flag = 50001; sint64 neg = 50002; }
        extend google.protobuf.EnumValueOptions { string label = 50000; }
        message M {
          option (ratio) = 0.5; option (opt.flag) = true; option (.opt.neg) = -7;
          string a = 1 [(rule) = { most: -5, words: ["x", 'y'] inner < most: 1; > by { key: "k" value: 3 } d: -1.5 }];
          string b = 2 [(rule).most = 1, (rule).inner.words = "deep", (nums) = 1,
                        (nums) = 2, (mode) = ON, (raw) = "\\001"];
          enum E { Z = 0 [(label) = "zero" "th"]; }
        }
    """,
    "editions": """
        edition = "2023";
        package ed;
        option features.field_presence = IMPLICIT;
        message A {
          int32 n = 1 [features.field_presence = LEGACY_REQUIRED]; A a = 2 [features.message_encoding = DELIMITED];
          repeated int32 p = 3 [features.repeated_field_encoding = EXPANDED]; reserved b, c; reserved 9;
          string s = 4 [default = "x", features.field_presence = EXPLICIT]; map<string, E> m = 5;
          oneof o { int32 q = 6; }
        }
        enum E { E_ZERO = 0; } enum F { option features.enum_type = CLOSED; F_ONE = 1; }
    """,
    "scopes": """
        syntax = "proto3";
        package a.b.c;
        message Outer {
          message Inner { Inner i = 1; Outer o = 2; b.c.Outer p = 3; c.Outer.Inner q = 4; .a.b.c.Other r = 5; }
          message Other { }
          Other own = 2;
        }
        message Other {}
        message Inner { message Deep {} }
    """,
    "weak and empty": 'import weak "common.proto"; ; ; message A { ; } enum E { ; X = 5; ; }',
}  # fmt: skip
REFUSED = [
    "message A { optional int32 n = 1 }",
    "message A { optional string s = 1 [default = 5]; }",
    "message A { optional A a = 1 [default = X]; }",
    "message A { optional int32 n = 536870912; }",
    "message A { extensions 5 to 3; }",
    "message A { reserved 5 to 7, 6; }",
    "message A { map<float, int32> m = 1; }",
    "message A { repeated map<int32, int32> m = 1; }",
    "message A { optional int32 n = 1; enum E { n = 1; } }",
    "enum E { A = 1; } enum F { A = 2; }",
    "message A { oneof o { repeated int32 n = 1; } }",
    "message A { optional string s = 1 [packed = true]; }",
    "message A { optional int32 n = 1 [deprecated = 1]; }",
    "message A { optional int32 n = 1 [deprecated = true, deprecated = true]; }",
    "service S { rpc Go (Nope) returns (Nope); }",
    'syntax = "proto3"; message A { extensions 1 to 5; }',
    'syntax = "proto3"; message A { optional group G = 1 {} }',
    'syntax = "proto3"; message A { int32 n = 1 [default = 5]; }',
    'syntax = "proto3"; message A {} extend A { int32 n = 1; }',
    'edition = "2023"; message A { optional int32 n = 1; }',
    'edition = "2023"; message A { reserved "quoted"; }',
    "package a; package b; message A {}",
    "import 'nope.proto'; message A {}",
    "message A { optional int32 n = 08; }",
    "message A { optional int32 n = 1 [default = 99999999999]; }",
    'option java_package = "\\q"; message A {}',
    "message A } {",
]


@cache
def by_protoc(directory: Path, name: str) -> FileDescriptorProto | None:
    """What protoc makes of a file, or nothing."""
    out = directory / f"{name.replace('/', '_')}.set"
    arguments = [f"-I{directory}", f"-I{SHIPPED}", f"--descriptor_set_out={out}", "--retain_options", name]
    if protoc.main(["protoc", *arguments]) != 0:
        return None
    return FileDescriptorSet.FromString(out.read_bytes()).file[0]


def same(schema: ProtobufSchema, file: FileDescriptorProto) -> bool:
    """Whether two files are equal, custom options included, which are understood by the schema's own pool."""
    ours = FileDescriptorProto()
    ours.CopyFrom(schema.files.main)
    ours.name = file.name
    try:
        kind = message_class(schema.files.pool.FindMessageTypeByName("google.protobuf.FileDescriptorProto"))
    except KeyError:
        return ours == file
    return bool(kind.FromString(ours.SerializeToString()) == kind.FromString(file.SerializeToString()))


@pytest.mark.parametrize("name", ACCEPTED)
def test_the_descriptor_is_the_one_that_protoc_makes(name: str, tmp_path: Path) -> None:
    (tmp_path / "common.proto").write_text(COMMON)
    (tmp_path / "main.proto").write_text(ACCEPTED[name])
    file = by_protoc(tmp_path, "main.proto")
    assert file is not None
    assert same(parse(ACCEPTED[name], {"common.proto": COMMON}), file)


@pytest.mark.parametrize("name", ACCEPTED)
def test_protoc_reads_the_canonical_and_the_normalised_text(name: str, tmp_path: Path) -> None:
    (tmp_path / "common.proto").write_text(COMMON)
    schema = parse(ACCEPTED[name], {"common.proto": COMMON})
    (tmp_path / "main.proto").write_text(schema.canonical())
    (tmp_path / "normalized.proto").write_text(schema.normalized())
    file = by_protoc(tmp_path, "main.proto")
    assert file is not None
    assert same(parse(schema.canonical(), {"common.proto": COMMON}), file)
    assert by_protoc(tmp_path, "normalized.proto") is not None


@pytest.mark.parametrize("text", REFUSED)
def test_what_protoc_refuses_is_refused(text: str, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "main.proto").write_text(text)
    assert by_protoc(tmp_path, "main.proto") is None
    with pytest.raises(InvalidSchema):
        parse(text, {})
    capfd.readouterr()


@pytest.mark.parametrize("path", sorted(SHIPPED.rglob("*.proto")), ids=lambda path: str(path.relative_to(SHIPPED)))
def test_files_that_ship_with_protoc_are_read_alike(path: Path, tmp_path: Path) -> None:
    name = str(path.relative_to(SHIPPED))
    references = {str(each.relative_to(SHIPPED)): each.read_text() for each in SHIPPED.rglob("*.proto")}
    file = by_protoc(tmp_path, name)
    assert file is not None
    assert same(parse(path.read_text(), references), file)
