"""Compatibility of Avro schemas: the rules of Avro's Java `SchemaCompatibility`, with its kinds and paths.

The registry decides on directions and histories (backward, forward, transitive). Names are compared without their
namespaces, or through the reader's aliases; logical types don't matter. Each pair of types is compared once; a pair
that contains itself counts as compatible. The number of comparisons is limited: beyond the limit the schemas are
incompatible.
"""

from collections.abc import Generator
from typing import Final, NamedTuple

from streamhouse.schemas.avro.types import MISSING, Array, AvroType, Enum, Field, Fixed, Map, Named, Record, Union
from streamhouse.schemas.base import MAX_INCOMPATIBILITIES, Incompatibility
from streamhouse.schemas.comparison import TooComplex, compare_iteratively

MAX_PAIRS: Final = 100_000
"""Pairs to compare, repeated ones included."""

_PROMOTIONS: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}

Verdict = tuple[Incompatibility, ...]
_GOOD: Final[Verdict] = ()


class Pair(NamedTuple):
    reader: AvroType
    writer: AvroType
    path: str


Steps = Generator[Pair, Verdict, Verdict]


def incompatibilities(reader: AvroType, writer: AvroType) -> list[Incompatibility]:
    comparison = _Comparison()
    try:
        verdict = compare_iteratively(Pair(reader, writer, ""), comparison.known, comparison.judge)
    except TooComplex:
        message = f"the schemas are too complex to be compared; steps={MAX_PAIRS}"
        return [Incompatibility(kind="SCHEMA_TOO_COMPLEX", path="/", message=message)]
    return list(dict.fromkeys(verdict))[:MAX_INCOMPATIBILITIES]


class _Comparison:
    """The pairs compared so far, by identity; those still being compared count as compatible."""

    def __init__(self) -> None:
        self._verdicts: dict[tuple[int, int], Verdict] = {}
        self._pairs_left = MAX_PAIRS

    def known(self, pair: Pair) -> Verdict | None:
        self._pairs_left -= 1
        if self._pairs_left < 0:
            raise TooComplex
        return self._verdicts.get((id(pair.reader), id(pair.writer)))

    def judge(self, pair: Pair) -> Steps:
        key = (id(pair.reader), id(pair.writer))
        self._verdicts[key] = _GOOD
        verdict = yield from _compare(*pair)
        self._verdicts[key] = verdict[:MAX_INCOMPATIBILITIES]
        return self._verdicts[key]


def _compare(reader: AvroType, writer: AvroType, path: str) -> Steps:
    match reader, writer:
        case Union(), Union():
            return (yield from _unions(reader, writer, path))
        case _, Union():
            return (yield from _every_branch(reader, writer, path))
        case Union(), _:
            return (yield from _some_branch(reader, writer, path))
        case Array(), Array():
            return (yield Pair(reader.items, writer.items, f"{path}/items"))
        case Map(), Map():
            return (yield Pair(reader.values, writer.values, f"{path}/values"))
        case Fixed(), Fixed():
            return _names(reader, writer, path) + _sizes(reader, writer, path)
        case Enum(), Enum():
            return _names(reader, writer, path) + _symbols(reader, writer, path)
        case Record(), Record():
            return _names(reader, writer, path) + (yield from _fields(reader, writer, path))
    if reader.kind == writer.kind or writer.kind in _PROMOTIONS.get(reader.kind, ()):
        return _GOOD
    return _mismatch(reader, writer, path)


def _unions(reader: Union, writer: Union, path: str) -> Steps:
    lacking: list[Incompatibility] = []
    for index, branch in enumerate(writer.branches):
        if (yield Pair(reader, branch, f"{path}/{index}")) != _GOOD:
            message = f"reader union lacking writer type: {_caps(branch)}"
            lacking += _reason("MISSING_UNION_BRANCH", f"{path}/{index}", message)
    return tuple(lacking)


def _every_branch(reader: AvroType, writer: Union, path: str) -> Steps:
    verdict: list[Incompatibility] = []
    for index, branch in enumerate(writer.branches):
        verdict += yield Pair(reader, branch, f"{path}/{index}")
    return tuple(verdict)


def _some_branch(reader: Union, writer: AvroType, path: str) -> Steps:
    for branch in reader.branches:
        if (yield Pair(branch, writer, path)) == _GOOD:
            return _GOOD
    return _reason("MISSING_UNION_BRANCH", path, f"reader union lacking writer type: {_caps(writer)}")


def _fields(reader: Record, writer: Record, path: str) -> Steps:
    written = {each.name: each for each in writer.fields}
    verdict: list[Incompatibility] = []
    for index, field in enumerate(reader.fields):
        here = f"{path}/fields/{index}"
        sources = [written[name] for name in dict.fromkeys((field.name, *field.aliases)) if name in written]
        if len(sources) > 1:
            verdict += _reason("TYPE_MISMATCH", here, f"reader field {field.name} matches several fields of the writer")
        elif sources:
            verdict += yield Pair(field.type, sources[0].type, f"{here}/type")
        elif field.default is MISSING:
            verdict += _unfilled(field, writer, here)
    return tuple(verdict)


def _unfilled(field: Field, writer: Record, path: str) -> Verdict:
    # An enum's own default is no default of the field: Java compares the enum with the record, which never fits.
    if isinstance(field.type, Enum) and field.type.default is not None:
        return _mismatch(field.type, writer, f"{path}/type")
    return _reason("READER_FIELD_MISSING_DEFAULT_VALUE", path, field.name)


def _names(reader: Named, writer: Named, path: str) -> Verdict:
    if reader.short_name == writer.short_name or writer.name in reader.aliases:
        return _GOOD
    return _reason("NAME_MISMATCH", f"{path}/name", f"expected: {writer.name}")


def _sizes(reader: Fixed, writer: Fixed, path: str) -> Verdict:
    if reader.size_bytes == writer.size_bytes:
        return _GOOD
    message = f"expected: {writer.size_bytes}, found: {reader.size_bytes}"
    return _reason("FIXED_SIZE_MISMATCH", f"{path}/size", message)


def _symbols(reader: Enum, writer: Enum, path: str) -> Verdict:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    if not missing or reader.default is not None:
        return _GOOD
    return _reason("MISSING_ENUM_SYMBOLS", f"{path}/symbols", f"[{', '.join(missing)}]")


def _mismatch(reader: AvroType, writer: AvroType, path: str) -> Verdict:
    message = f"reader type: {_caps(reader)} not compatible with writer type: {_caps(writer)}"
    return _reason("TYPE_MISMATCH", path, message)


def _reason(kind: str, path: str, message: str) -> Verdict:
    return (Incompatibility(kind=kind, path=path or "/", message=message),)


def _caps(kind: AvroType) -> str:
    return "RECORD" if kind.kind == "error" else kind.kind.upper()
