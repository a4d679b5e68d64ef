"""The canonical text of a schema is the same for everything that means the same."""

import base64

from streamhouse.schemas.protobuf import ProtobufSchema, parse

ORDERS = """
    // Orders and what is in them.
    syntax = "proto3";
    package shop.v1;
    import "google/protobuf/timestamp.proto";
    import "common.proto";
    option java_package = "shop.v1";

    message Order {
      reserved 20 to 22, 30;
      reserved "old";
      string id = 1;
      optional int32 priority = 2;
      map<string, Line> lines = 3;
      oneof payment { string card = 4; Money cash = 5 [deprecated = true]; }
      message Line { int64 count = 1; repeated Kind kinds = 2 [packed = false]; }
      enum Kind { NONE = 0; FRAGILE = 1; }
      google.protobuf.Timestamp at = 6 [json_name = "when"];
    }
    message Money { common.Currency currency = 1; }
    service Shop { rpc Buy (stream Order) returns (Money); }
"""
REFERENCES = {"common.proto": 'syntax = "proto3"; package common; message Currency { string code = 1; }'}


def orders(text: str = ORDERS) -> ProtobufSchema:
    return parse(text, REFERENCES)


def test_a_text_is_kept_as_it_was_given() -> None:
    assert orders().text == ORDERS


def test_the_canonical_text_says_the_same_as_the_text_it_was_made_of() -> None:
    again = orders(orders().canonical())
    assert again.files.main == orders().files.main
    assert again.canonical() == orders().canonical()


def test_spaces_comments_and_short_names_make_no_other_schema() -> None:
    other = " ".join(ORDERS.replace("// Orders and what is in them.", "").split()).replace(
        " Line>", " .shop.v1.Order.Line>"
    )
    assert orders(other).canonical() == orders().canonical()


def test_a_text_and_its_serialised_descriptor_are_one_schema() -> None:
    serialized = orders(orders().serialized())
    assert serialized.canonical() == orders().canonical()
    assert serialized.serialized() == orders().serialized()


def test_a_descriptor_is_read_back_as_text() -> None:
    serialized = orders(orders().serialized())
    assert serialized.text == orders().canonical()


def test_a_descriptor_as_the_library_writes_it_is_the_same_schema() -> None:
    schema = orders()
    library = schema.files.pool.FindFileByName(schema.files.main.name).serialized_pb
    assert orders(base64.b64encode(library).decode()).canonical() == schema.canonical()


def test_another_order_of_fields_is_the_same_only_when_normalised() -> None:
    one = parse('syntax = "proto3"; message A { int32 a = 1; int32 b = 2; }', {})
    other = parse('syntax = "proto3"; message A { int32 b = 2; int32 a = 1; }', {})
    assert one.canonical() != other.canonical()
    assert one.normalized() == other.normalized()


def test_normalising_twice_changes_nothing() -> None:
    assert orders(orders().normalized()).normalized() == orders().normalized()


def test_normalising_keeps_the_first_value_of_an_enum_first() -> None:
    text = 'syntax = "proto3"; enum E { option allow_alias = true; Z = 0; B = -1; A = 0; }'
    assert parse(parse(text, {}).normalized(), {}).files.main.enum_type[0].value[0].name == "Z"


def test_messages_keep_their_index_though_maps_and_groups_define_some_between() -> None:
    text = """
        message A {
          message First {}
          map<int32, First> m = 1;
          message Second {}
          oneof o { group Third = 2 { optional int32 n = 1; } }
          message Fourth {}
          optional int32 last = 9;
        }
    """
    schema = parse(text, {})
    names = [message.name for message in schema.files.main.message_type[0].nested_type]
    assert names == ["First", "MEntry", "Second", "Third", "Fourth"]
    for printed in (schema.canonical(), schema.normalized()):
        again = parse(printed, {}).files.main.message_type[0].nested_type
        assert [message.name for message in again] == names


def test_everything_that_proto2_has_comes_back() -> None:
    text = r"""
        package p;
        message A {
          option message_set_wire_format = false;
          required int32 r = 1;
          optional string s = 2 [default = "a\"\n\303\251"];
          optional bytes b = 3 [default = "\000\377'"];
          optional float f = 4 [default = -1.5e-10];
          optional double d = 5 [default = nan];
          optional E e = 6 [default = TWO];
          repeated group G = 7 { optional A a = 1; }
          extensions 100 to 199, 1000 to max [verification = UNVERIFIED];
          extend A { optional int32 inner = 150; }
        }
        enum E { ONE = 1; TWO = 2; MINUS = -1; reserved -10 to -5, 100 to max; reserved "OLD"; }
        extend A { repeated string outer = 1000; optional group Extra = 1001 { optional int32 n = 1; } }
    """
    schema = parse(text, {})
    assert parse(schema.canonical(), {}).files.main == schema.files.main
