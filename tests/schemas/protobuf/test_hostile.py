"""Whatever is sent as a schema ends as a schema or as `InvalidSchema`, soon."""

import base64
import random
import re

import pytest
from google.protobuf.descriptor_pb2 import FieldDescriptorProto, FileDescriptorProto

from streamhouse.errors import InvalidSchema
from streamhouse.schemas import parse_schema
from streamhouse.schemas.base import MAX_TEXT_BYTES
from streamhouse.schemas.protobuf import parse

P3 = 'syntax = "proto3";'
OPTIONS = """
    import "google/protobuf/descriptor.proto";
    message W { repeated string w = 1; optional W inner = 2; extensions 5; }
    extend google.protobuf.FileOptions { optional W x = 50000; }
"""
SEED = """
    syntax = "proto3"; package a.b; import "o.proto"; option java_package = "x";
    message User {
      string name = 1; int32 age = 2 [deprecated = true]; repeated string tags = 3; map<string, int64> counts = 4;
      Kind kind = 5; optional double score = 6; o.M inner = 9; oneof which { int32 a = 14; string b = 15; }
      reserved 20 to 30, 50; reserved "q", "w";
      message Inner { uint32 n = 1; Inner deeper = 2; }
      enum Kind { option allow_alias = true; NONE = 0; SOME = 1; ALSO = 1; }
    }
    service S { rpc Go (stream User) returns (o.M) { option deprecated = true; } }
"""
SEED2 = r"""
    package q; import "google/protobuf/descriptor.proto";
    message A {
      required int32 r = 1; optional string s = 2 [default = "a\"\n"]; optional bytes b = 3 [default = "\000\377"];
      optional float f = 4 [default = -1.5e-10]; optional E e = 6 [default = TWO];
      repeated group G = 7 { optional A a = 1; } extensions 100 to 199, 1000 to max;
      extend A { optional int32 inner = 150; } repeated int32 pk = 8 [packed = true];
    }
    enum E { ONE = 1; TWO = 2; MINUS = -1; reserved -10 to -5, 100 to max; reserved "OLD"; }
    message R { optional int32 most = 1; repeated string words = 2; map<string, int32> mm = 3; }
    extend google.protobuf.FieldOptions { optional R rule = 50000; optional bool secret = 50001; }
    message M { optional string s = 1 [(rule) = { most: 5 words: ["x"] mm { key: "a" value: 1 } }, (q.secret) = true]; }
"""
REFERENCES = {"o.proto": 'syntax = "proto3"; package o; message M { int32 n = 1; map<string, M> m = 2; }'}
WORDS = [
    "message", "enum", "oneof", "map", "group", "extend", "extensions", "reserved", "optional", "required", "repeated",
    "option", "import", "package", "syntax", "service", "rpc", "stream", "{", "}", "[", "]", "(", ")", "<", ">", "=",
    ";", ",", ".", "0", "1", "-1", "536870912", "19000", "99999999999999999999", "1e999", '"x"', "true", "nan", "max",
    "to", "A", "User", ".a.b.User", "Kind", "int32", "bytes", "json_name", "default", "packed", "map_entry",
    "features", "/*", "//", "\\", "\x00", "\ud800",
]  # fmt: skip


def full(unit: str, head: str = "", tail: str = "", limit: int = MAX_TEXT_BYTES) -> str:
    """A text as large as it may be, of one thing again and again; `#` is a number."""
    parts, room = [head], limit - len(head) - len(tail)
    if "#" not in unit:
        return head + unit * (room // len(unit)) + tail
    at = 1
    while room > len(unit) + 8:
        parts.append(unit.replace("#", str(at)))
        room -= len(parts[-1])
        at += 1
    return "".join(parts) + tail


@pytest.mark.parametrize(
    "text",
    [
        full("message A {", limit=200_000),
        full("{", "option (x) = ", limit=200_000),
        full("[", "option (x) = { a: ", limit=200_000),
        full("message M# {}", P3),
        full("int32 f# = #;", P3 + "message A {", "}"),
        full('import "#.proto";', P3),
        P3 + full("a.", "package ", "a;") + "message A {}",
        P3 + f"message {'a' * 500_000} {{ int32 n = 1; }}",
        P3 + f"message A {{ {'a.' * 400_000}a n = 1; }}",
        f"message A {{ optional int32 n = {'9' * 900_000}; }}",
        f"message A {{ optional int32 n = 1 [default = 0x{'f' * 900_000}]; }}",
        full("*", "/*"),
        full("\\a", '"'),
        full("option (x#) = 1;", OPTIONS),
        full("[a.b] ", OPTIONS + "option (x) = {", "};"),
        OPTIONS + "option (x) = {" + "inner {" * 40 + "}" * 40 + "};",
        full(";"),
        "A" * 1_000_000,
        full(" ", tail="{"),
        full(" ", "A", "{"),
        full(" ", "A==", "{"),
        "\0",
        "é",
    ],
    ids=range(23),
)
def test_a_text_that_is_large_deep_or_strange_is_refused(text: str) -> None:
    with pytest.raises(InvalidSchema):
        parse_schema("PROTOBUF", text, {})


def test_a_text_of_which_a_half_letter_is_left_is_refused() -> None:
    with pytest.raises(InvalidSchema):
        parse('option java_package = "\ud800"; message A {}', {})


def test_a_long_chain_of_imports_is_followed_and_a_longer_one_refused() -> None:
    chain = {f"{at}.proto": f'import public "{at + 1}.proto"; message M{at} {{}}' for at in range(900)}
    parse('import "0.proto"; message A { optional M899 m = 1; }', {**chain, "900.proto": "message Last {}"})
    endless = {f"{at}.proto": f'import "{at + 1}.proto";' for at in range(5_000)}
    with pytest.raises(InvalidSchema, match="too many imports"):
        parse('import "0.proto"; message A {}', endless)


def test_an_option_whose_type_is_a_long_chain_of_types_is_understood() -> None:
    links = "".join(f"message M{at} {{ optional M{at + 1} next = 1; }}" for at in range(2_000))
    text = f"""
        import "google/protobuf/descriptor.proto"; {links} message M2000 {{}}
        extend google.protobuf.FileOptions {{ optional M0 x = 50000; }}
        option (x) = {{ next {{ }} }};
    """
    assert "option (.x) = { next { } };" in parse(text, {}).canonical()


def serialized(file: FileDescriptorProto) -> str:
    return base64.b64encode(file.SerializePartialToString()).decode()


def bad_descriptors() -> list[FileDescriptorProto]:
    """Descriptors that no compiler makes, each wrong in one way."""

    def file(**field: object) -> FileDescriptorProto:
        made = FileDescriptorProto(syntax="proto3")
        message = made.message_type.add(name="A")
        message.field.add(**{"name": "f", "number": 1, "label": 1, "type": 5, **field})
        return made

    entry = file(type=11, type_name=".A.FEntry", label=1)
    entry.message_type[0].nested_type.add(name="FEntry").options.map_entry = True
    cycle = FileDescriptorProto(dependency=["default.proto"])
    twice = FileDescriptorProto(dependency=["o.proto", "o.proto"])
    beyond = FileDescriptorProto(public_dependency=[7])
    nameless = FileDescriptorProto()
    nameless.message_type.add()
    deep = FileDescriptorProto()
    message = deep.message_type.add(name="A")
    for _ in range(60):
        message = message.nested_type.add(name="A")
    option = FileDescriptorProto()
    option.options.uninterpreted_option.add()
    not_text = FileDescriptorProto.FromString(b"\x12\x02\xff\xfe")
    return [
        file(name=""), file(name="a b"), file(number=0), file(number=-1), file(number=2**31 - 1), file(type=11),
        file(type=14), file(type=10), file(type_name=".Nope"), file(oneof_index=3), file(oneof_index=-1),
        file(label=2), file(proto3_optional=True), file(default_value="x"), file(extendee=".A"),
        file(json_name="\0"), entry, cycle, twice, beyond, nameless, deep, option, not_text,
        FileDescriptorProto(syntax="proto9"), FileDescriptorProto(package="a..b"),
    ]  # fmt: skip


@pytest.mark.parametrize("at", range(len(bad_descriptors())))
def test_a_descriptor_that_no_compiler_makes_is_refused(at: int) -> None:
    with pytest.raises(InvalidSchema):
        parse(serialized(bad_descriptors()[at]), REFERENCES)


def scrambled(text: str, chance: random.Random) -> str:
    parts = re.findall(r"\s+|\w+|.", text, re.DOTALL)
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at, other = chance.randrange(len(parts)), chance.randrange(len(parts))
        match chance.randrange(5):
            case 0:
                parts[at : at + chance.choice((1, 2, 9))] = [" "]
            case 1:
                parts.insert(at, f" {chance.choice(WORDS)} ")
            case 2:
                parts[at] = chance.choice(WORDS)
            case 3:
                parts[at], parts[other] = parts[other], parts[at]
            case _:
                parts[at:at] = parts[other : other + chance.choice((1, 5, 30))]
    return "".join(parts)


def understood(text: str) -> bool:
    """Whether a text is a schema; one that is must be the same when it is printed and read again."""
    try:
        schema = parse(text, REFERENCES)
    except InvalidSchema:
        return False
    again = parse(schema.canonical(), REFERENCES)
    assert again.canonical() == schema.canonical()
    assert parse(schema.serialized(), REFERENCES).canonical() == schema.canonical()
    assert parse(schema.normalized(), REFERENCES).normalized() == schema.normalized()
    assert not schema.incompatibilities(again)
    return True


@pytest.mark.parametrize("text", [SEED, SEED2], ids=["proto3", "proto2"])
def test_scrambled_texts_are_schemas_or_refused(text: str) -> None:
    chance = random.Random(text)
    verdicts = [understood(scrambled(text, chance)) for _ in range(400)]
    assert 0 < sum(verdicts) < len(verdicts)


@pytest.mark.parametrize("text", [SEED, SEED2], ids=["proto3", "proto2"])
def test_scrambled_descriptors_are_schemas_or_refused(text: str) -> None:
    chance = random.Random(text)
    whole = parse(text, REFERENCES).files.main.SerializeToString()
    verdicts = []
    for _ in range(600):
        raw = bytearray(whole)
        for _ in range(chance.choice((1, 1, 2))):
            at = chance.randrange(len(raw))
            raw[at : at + chance.randrange(2)] = bytes([chance.randrange(256)])
        verdicts.append(understood(base64.b64encode(raw).decode()))
    assert 0 < sum(verdicts) < len(verdicts)


def test_every_kind_of_field_can_be_wrongly_typed_without_harm() -> None:
    for kind in FieldDescriptorProto.Type.values():
        for label in FieldDescriptorProto.Label.values():
            for name in ("", ".A", ".E", "A", ".A.GEntry"):
                file = FileDescriptorProto()
                message = file.message_type.add(name="A")
                message.field.add(name="g", number=1, label=label, type=kind, type_name=name)
                file.enum_type.add(name="E").value.add(name="Z", number=0)
                entry = message.nested_type.add(name="GEntry")
                entry.options.map_entry = True
                for at, each in enumerate(("key", "value"), start=1):
                    entry.field.add(name=each, number=at, label=1, type=5)
                understood(serialized(file))
