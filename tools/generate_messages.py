"""Generate `streamhouse.wire.kafka.messages` from Kafka's own message definitions.

The definitions are the JSON resources `common/message/*.json` of the kafka-clients jar. This script turns each API
that a client may send to a broker into one module with plain structs; `codec` turns those into bytes.

    python tools/generate_messages.py [--source JAR_OR_FOLDER] [--target FOLDER]

Without --source the jar is looked for in $KAFKA_CLIENTS_JAR and then in the local Maven repository.
"""

import argparse
import json
import keyword
import os
import re
import subprocess
import sys
import zipfile
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final

KAFKA_VERSION: Final = "4.4.0"
JAR: Final = f"kafka-clients-{KAFKA_VERSION}.jar"
ROOT: Final = Path(__file__).resolve().parent.parent
TARGET: Final = ROOT / "src/streamhouse/wire/kafka/messages"

# Between the brokers of one cluster, though the broker's listener serves them: the state of share groups.
BROKER_TO_BROKER: Final = frozenset(range(83, 88))
# What docs/protocol-support.md says is not served: their names are known, their classes are not generated.
UNSERVED: Final = frozenset(
    {
        "AddRaftVoter",
        "AlterShareGroupOffsets",
        "ConsumerGroupHeartbeat",
        "DeleteShareGroupOffsets",
        "DescribeQuorum",
        "DescribeShareGroupOffsets",
        "RemoveRaftVoter",
        "ShareAcknowledge",
        "ShareFetch",
        "ShareGroupDescribe",
        "ShareGroupHeartbeat",
        "StreamsGroupDescribe",
        "StreamsGroupHeartbeat",
        "StreamsGroupTopologyDescriptionUpdate",
        "UnregisterBroker",
        "UnregisterController",
        "UpdateFeatures",
    }
)
HEADERS: Final = ("RequestHeader", "ResponseHeader")
EMBEDDED: Final = ("ConsumerProtocolSubscription", "ConsumerProtocolAssignment")

PYTHON_TYPES: Final = {
    "bool": "bool",
    "string": "str",
    "bytes": "bytes",
    "uuid": "UUID",
    "float64": "float",
    **dict.fromkeys(("int8", "int16", "uint16", "int32", "uint32", "int64"), "int"),
}
SCHEMA_NAMES: Final = ("NEVER", "Buffer", "Message", "Records", "Request", "Response", "message", "wire")

Definition = dict[str, Any]  # one JSON file, or one field in it


# --- read the definitions ---------------------------------------------------------------------------------------


def find_source() -> Path | None:
    """The jar, where this machine has it."""
    named = os.environ.get("KAFKA_CLIENTS_JAR")
    in_maven = Path.home() / ".m2/repository/org/apache/kafka/kafka-clients" / KAFKA_VERSION / JAR
    candidates = [Path(named)] if named else [in_maven]
    return next((path for path in candidates if path.exists()), None)


def read_definitions(source: Path) -> dict[str, Definition]:
    """Every definition in a jar or a folder, by its message's name."""
    if source.is_dir():
        texts = [path.read_text() for path in sorted(source.glob("*.json"))]
    else:
        with zipfile.ZipFile(source) as jar:
            names = sorted(name for name in jar.namelist() if re.fullmatch(r"common/message/\w+\.json", name))
            texts = [jar.read(name).decode() for name in names]
    parsed = [json.loads(re.sub(r"^\s*//.*$", "", text, flags=re.MULTILINE)) for text in texts]
    return {definition["name"]: definition for definition in parsed}


def is_for_clients(definition: Definition) -> bool:
    return (
        definition["type"] == "request"
        and definition["validVersions"] != "none"
        and "broker" in definition["listeners"]
        and definition["apiKey"] not in BROKER_TO_BROKER
    )


def version_range(text: str) -> tuple[int, int | None]:
    """`3-7` is (3, 8), `3+` is (3, None), `4` is (4, 5): half open, like every range in this code base."""
    if text.endswith("+"):
        return int(text[:-1]), None
    first, _, last = text.partition("-")
    return int(first), int(last or first) + 1


def snake(name: str) -> str:
    return re.sub(r"(?<=[a-z0-9])(?=[A-Z])|(?<=[A-Z])(?=[A-Z][a-z])", "_", name).lower()


# --- write the classes ------------------------------------------------------------------------------------------


def element(field: Definition) -> str:
    return str(field["type"]).removeprefix("[]")


def is_struct(name: str) -> bool:
    return name[0].isupper()


def is_array(field: Definition) -> bool:
    return str(field["type"]).startswith("[]")


def parse_default(field: Definition) -> str | None:
    """The default as Python, or None where it is the type's own."""
    if "default" not in field:
        return None
    given = str(field["default"])
    if given == "null":
        return "None"
    match element(field):
        case "bool":
            return "True" if given.lower() == "true" else None
        case "string":
            return repr(given) if given else None
        case _:
            return str(int(given, 0)) if int(given, 0) else None


def wire_call(field: Definition, names: Mapping[str, str]) -> str:
    kind = element(field)
    written = names[kind] if is_struct(kind) else f'"{kind}"'
    arguments = [f"[{written}]" if is_array(field) else written]
    since, until = version_range(field["versions"])
    if since:
        arguments.append(f"since={since}")
    if until is not None:
        arguments.append(f"until={until}")
    if "nullableVersions" in field:
        null_since, null_until = version_range(field["nullableVersions"])
        arguments.append(f"null_since={null_since}")
        if null_until is not None:
            arguments.append(f"null_until={null_until}")
    if (default := parse_default(field)) is not None:
        arguments.append(f"default={default}")
    if "tag" in field:
        if field["taggedVersions"] != field["versions"]:
            raise ValueError(f"{field['name']}: tagged in some of its versions only")
        arguments.append(f"tag={field['tag']}")
    if field.get("ignorable") in (True, "true"):
        arguments.append("ignorable=True")
    if field.get("flexibleVersions") == "none":
        arguments.append("flexible=False")
    return f"wire({', '.join(arguments)})"


def annotation(field: Definition, names: Mapping[str, str], *, outbound: bool) -> str:
    kind = element(field)
    if kind == "records":
        return "Records" if outbound else "Buffer | None"
    inner = names[kind] if is_struct(kind) else PYTHON_TYPES[kind]
    plain = f"list[{inner}]" if is_array(field) else inner
    absent = "tag" in field and is_struct(kind) and not is_array(field)
    return f"{plain} | None" if absent or "nullableVersions" in field else plain


def field_lines(fields: Iterable[Definition], names: Mapping[str, str], *, outbound: bool) -> Iterator[str]:
    for field in fields:
        name = snake(field["name"])
        if keyword.iskeyword(name):
            raise ValueError(f"{name}: a keyword can't be a field")
        yield f"    {name}: {annotation(field, names, outbound=outbound)} = {wire_call(field, names)}"


def structs_of(definition: Definition) -> dict[str, list[Definition]]:
    """The structs of a message by name, each after those that it contains."""
    common = {each["name"]: each["fields"] for each in definition.get("commonStructs", [])}
    found: dict[str, list[Definition]] = {}

    def visit(fields: list[Definition]) -> None:
        for field in fields:
            kind = element(field)
            if is_struct(kind) and kind not in found:
                inner = field.get("fields") or common[kind]
                visit(inner)
                found[kind] = inner

    visit(definition["fields"])
    return found


def without_prose(value: Any) -> Any:
    """A definition as it matters to the wire, for comparing two of them."""
    if isinstance(value, dict):
        return {key: without_prose(inner) for key, inner in value.items() if key != "about"}
    return [without_prose(inner) for inner in value] if isinstance(value, list) else value


def stable_versions(definition: Definition) -> tuple[int, int]:
    """First and last version; one that Kafka calls unstable may still change and is left out."""
    first, end = version_range(definition["validVersions"])
    if end is None:
        raise ValueError(f"{definition['name']}: no last version")
    return first, end - 1 - bool(definition.get("latestVersionUnstable"))


def class_lines(definition: Definition, names: Mapping[str, str], response: str | None) -> Iterator[str]:
    base = {"request": "Request", "response": "Response"}.get(definition["type"], "Message")
    first, last = definition["versions"]
    flexible = definition["flexibleVersions"]
    facts: dict[str, Any] = {"name": f'"{re.sub("(Request|Response)$", "", definition["name"])}"'}
    if base == "Message":
        facts["name"] = f'"{definition["name"]}"'
    else:
        facts["api_key"] = definition["apiKey"]
    facts |= {"min_version": first, "max_version": last}
    facts["flexible_since"] = "NEVER" if flexible == "none" else version_range(flexible)[0]
    yield from ("", "", "@message", f"class {definition['name']}({base}):")
    for name, value in facts.items():
        kind = "str" if name == "name" else "int"
        yield f"    {name}: ClassVar[{kind}] = {value}"
    if response:
        yield f"    response_class: ClassVar[type[Response]] = {response}"
    yield ""
    yield from field_lines(definition["fields"], names, outbound=base == "Response")


def struct_lines(name: str, fields: list[Definition], names: Mapping[str, str], *, outbound: bool) -> Iterator[str]:
    yield from ("", "", "@message", f"class {names[name]}:")
    yield from field_lines(fields, names, outbound=outbound)


def title(definitions: list[Definition]) -> str:
    first = definitions[0]
    low, high = first["versions"]
    versions = f"version {low}" if low == high else f"versions {low}-{high}"
    if "apiKey" in first:
        return f"{first['name'].removesuffix('Request')}, API key {first['apiKey']}, {versions}."
    return " and ".join(each["name"] for each in definitions) + "."


def module(definitions: list[Definition]) -> str:
    """One module: an API's request and response, or a family of messages without an API."""
    for each in definitions:
        each["versions"] = stable_versions(each)
    if "apiKey" in definitions[0]:
        # An unstable version is marked on the request only.
        definitions[1]["versions"] = definitions[0]["versions"]
    structs = [structs_of(each) for each in definitions]
    body: list[str] = []
    written: dict[str, Any] = {}
    # The response stands first, because the request refers to it.
    for definition, own in reversed(list(zip(definitions, structs, strict=True))):
        outbound = definition["type"] == "response"
        names = {name: name for name in own}
        for name, fields in own.items():
            content = without_prose(fields)
            if name in written and written[name] == content:
                continue
            if name in written:
                names[name] = definition["type"].capitalize() + name
            written[names[name]] = content
            body += struct_lines(name, fields, names, outbound=outbound)
        body += class_lines(definition, names, definitions[1]["name"] if definition["type"] == "request" else None)
    return header(title(definitions), "\n".join(body)) + "\n".join(body) + "\n"


def header(first_line: str, body: str) -> str:
    used = [name for name in SCHEMA_NAMES if re.search(rf"\b{name}\b", body)]
    lines = [f'"""{first_line}', "", "Generated by tools/generate_messages.py; do not edit.", '"""', ""]
    lines.append("from typing import ClassVar")
    if re.search(r"\bUUID\b", body):
        lines.append("from uuid import UUID")
    lines += ["", f"from streamhouse.wire.kafka.schema import {', '.join(used)}"]
    return "\n".join(lines)


def api_name(request: Definition) -> str:
    return str(request["name"]).removesuffix("Request")


def registry(requests: list[Definition], unserved: list[Definition]) -> str:
    """The package's `__init__`: api key -> request class, and the names of the others."""
    lines = [
        '"""Messages: every Kafka API that is served, one module each, and the names of the others.',
        "",
        "Data path   framing -> codec -> **messages** -> handlers",
        "Owns        the classes of requests and responses; which API key means which request",
        "Leaves      bytes to `codec`; meaning to `handlers`; which versions are served to the handlers' table",
        "",
        f"Generated by tools/generate_messages.py from the definitions of Apache Kafka {KAFKA_VERSION}; do not edit.",
        '"""',
        "",
        "from collections.abc import Mapping",
        "from types import MappingProxyType",
        "from typing import Final",
        "",
    ]
    imports = {f"streamhouse.wire.kafka.messages.{module_name(each)}": each["name"] for each in requests}
    lines += [f"from {path} import {imports[path]}" for path in sorted(imports)]
    lines += ["from streamhouse.wire.kafka.schema import Request", ""]
    lines += ["REQUESTS: Final[Mapping[int, type[Request]]] = MappingProxyType(", "    {"]
    lines += [f"        {each['apiKey']}: {each['name']}," for each in requests]
    lines += ["    }", ")", ""]
    lines += ["UNSERVED: Final[Mapping[int, str]] = MappingProxyType(", "    {"]
    lines += [f'        {each["apiKey"]}: "{api_name(each)}",' for each in unserved]
    lines += ["    }", ")", '"""APIs that clients may send to a broker and that have no classes here, by key."""']
    return "\n".join(lines) + "\n"


def module_name(request: Definition) -> str:
    return snake(api_name(request))


def formatted(source: str) -> str:
    ruff = Path(sys.executable).with_name("ruff")
    command = [str(ruff), "format", "--stdin-filename", "messages.py", "-"]
    done = subprocess.run(command, input=source, capture_output=True, text=True, check=True, cwd=ROOT)
    return done.stdout


def generate(definitions: Mapping[str, Definition]) -> dict[str, str]:
    """File name -> content of the whole package."""
    known = sorted(filter(is_for_clients, definitions.values()), key=lambda each: each["apiKey"])
    requests = [each for each in known if api_name(each) not in UNSERVED]
    files = {"__init__.py": registry(requests, [each for each in known if api_name(each) in UNSERVED])}
    for request in requests:
        response = definitions[f"{api_name(request)}Response"]
        files[f"{module_name(request)}.py"] = module([request, response])
    files["header.py"] = module([definitions[name] for name in HEADERS])
    files["consumer_protocol.py"] = module([definitions[name] for name in EMBEDDED])
    return {name: formatted(content) for name, content in files.items()}


def main() -> None:
    parser = argparse.ArgumentParser(description="Generate the Kafka message classes.")
    parser.add_argument("--source", type=Path, default=find_source())
    parser.add_argument("--target", type=Path, default=TARGET)
    arguments = parser.parse_args()
    if arguments.source is None:
        sys.exit(
            f"no {JAR} here: run `mvn dependency:get -Dartifact=org.apache.kafka:kafka-clients:{KAFKA_VERSION}`,"
            " or set KAFKA_CLIENTS_JAR to one"
        )
    files = generate(read_definitions(arguments.source))
    for stale in set(arguments.target.glob("*.py")) - {arguments.target / name for name in files}:
        stale.unlink()
    for name, content in files.items():
        (arguments.target / name).write_text(content)
    sys.stdout.write(f"{len(files)} modules written to {arguments.target}\n")


if __name__ == "__main__":
    main()
