"""Which Avro schemas can read what was written with which: the rules of Avro's Java `SchemaCompatibility`.

Data path   registry -> **incompatibilities** -> what the caller is told
Owns        the verdict on a reader's and a writer's type, with the kinds and paths that Java gives
Leaves      directions and histories (backward, forward, transitive) to the registry

Names are compared without their namespaces, or through the reader's aliases; logical types don't matter. Pairs are
judged once; a pair that is met inside itself is taken for good. The number of pairs is limited: unions of thousands of
types on both sides get a verdict in bounded time, and that verdict is no.
"""

from dataclasses import dataclass, field
from typing import Final

from streamhouse.format.schemas.avro.types import (
    MISSING,
    Array,
    AvroType,
    Enum,
    Field,
    Fixed,
    Map,
    Named,
    Record,
    Union,
)
from streamhouse.format.schemas.base import MAX_INCOMPATIBILITIES, Incompatibility

MAX_PAIRS: Final = 200_000
MAX_PAIR_DEPTH: Final = 150

_PROMOTIONS: Final = {
    "long": ("int",),
    "float": ("int", "long"),
    "double": ("int", "long", "float"),
    "bytes": ("string",),
    "string": ("bytes",),
}

Verdict = tuple[Incompatibility, ...]
_GOOD: Final[Verdict] = ()


class _TooComplex(Exception):
    """The limits are reached."""


def incompatibilities(reader: AvroType, writer: AvroType) -> list[Incompatibility]:
    try:
        return list(_Comparison().judge(reader, writer, "", 0))[:MAX_INCOMPATIBILITIES]
    except (_TooComplex, RecursionError):
        message = f"the schemas are too complex to be compared; pairs={MAX_PAIRS} depth={MAX_PAIR_DEPTH}"
        return [Incompatibility(kind="SCHEMA_TOO_COMPLEX", path="/", message=message)]


@dataclass(slots=True)
class _Comparison:
    """The pairs judged so far, by identity; those still being judged count as good."""

    verdicts: dict[tuple[int, int], Verdict] = field(default_factory=dict)

    def judge(self, reader: AvroType, writer: AvroType, path: str, depth: int) -> Verdict:
        pair = (id(reader), id(writer))
        if pair in self.verdicts:
            return self.verdicts[pair]
        if depth > MAX_PAIR_DEPTH or len(self.verdicts) >= MAX_PAIRS:
            raise _TooComplex
        self.verdicts[pair] = _GOOD
        verdict = self._compare(reader, writer, path, depth + 1)
        self.verdicts[pair] = verdict
        return verdict

    def _compare(self, reader: AvroType, writer: AvroType, path: str, depth: int) -> Verdict:
        match reader, writer:
            case Union(), Union():
                return self._unions(reader, writer, path, depth)
            case _, Union():
                judged = (self.judge(reader, b, f"{path}/{i}", depth) for i, b in enumerate(writer.branches))
                return tuple(each for verdict in judged for each in verdict)
            case Union(), _:
                if any(self.judge(branch, writer, path, depth) == _GOOD for branch in reader.branches):
                    return _GOOD
                return _because("MISSING_UNION_BRANCH", path, f"reader union lacking writer type: {_caps(writer)}")
            case Array(), Array():
                return self.judge(reader.items, writer.items, f"{path}/items", depth)
            case Map(), Map():
                return self.judge(reader.values, writer.values, f"{path}/values", depth)
            case Fixed(), Fixed():
                return _names(reader, writer, path) + _sizes(reader, writer, path)
            case Enum(), Enum():
                return _names(reader, writer, path) + _symbols(reader, writer, path)
            case Record(), Record():
                return _names(reader, writer, path) + self._fields(reader, writer, path, depth)
        if reader.kind == writer.kind or writer.kind in _PROMOTIONS.get(reader.kind, ()):
            return _GOOD
        return _mismatch(reader, writer, path)

    def _unions(self, reader: Union, writer: Union, path: str, depth: int) -> Verdict:
        lacking: list[Incompatibility] = []
        for index, branch in enumerate(writer.branches):
            if self.judge(reader, branch, f"{path}/{index}", depth) != _GOOD:
                message = f"reader union lacking writer type: {_caps(branch)}"
                lacking += _because("MISSING_UNION_BRANCH", f"{path}/{index}", message)
        return tuple(lacking)

    def _fields(self, reader: Record, writer: Record, path: str, depth: int) -> Verdict:
        written = {each.name: each for each in writer.fields}
        found: list[Incompatibility] = []
        for index, wanted in enumerate(reader.fields):
            here = f"{path}/fields/{index}"
            sources = [written[name] for name in dict.fromkeys((wanted.name, *wanted.aliases)) if name in written]
            if len(sources) > 1:
                message = f"reader field {wanted.name} matches several fields of the writer"
                found += _because("TYPE_MISMATCH", here, message)
            elif sources:
                found += self.judge(wanted.type, sources[0].type, f"{here}/type", depth)
            elif wanted.default is MISSING:
                found += _unfilled(wanted, writer, here)
        return tuple(found[:MAX_INCOMPATIBILITIES])


def _unfilled(wanted: Field, writer: Record, path: str) -> Verdict:
    # An enum's own default is no default of the field: Java compares the enum with the record, which never fits.
    if isinstance(wanted.type, Enum) and wanted.type.default is not None:
        return _mismatch(wanted.type, writer, f"{path}/type")
    return _because("READER_FIELD_MISSING_DEFAULT_VALUE", path, wanted.name)


def _names(reader: Named, writer: Named, path: str) -> Verdict:
    if reader.short_name == writer.short_name or writer.name in reader.aliases:
        return _GOOD
    return _because("NAME_MISMATCH", f"{path}/name", f"expected: {writer.name}")


def _sizes(reader: Fixed, writer: Fixed, path: str) -> Verdict:
    if reader.size_bytes == writer.size_bytes:
        return _GOOD
    message = f"expected: {writer.size_bytes}, found: {reader.size_bytes}"
    return _because("FIXED_SIZE_MISMATCH", f"{path}/size", message)


def _symbols(reader: Enum, writer: Enum, path: str) -> Verdict:
    missing = sorted(set(writer.symbols) - set(reader.symbols))
    if not missing or reader.default is not None:
        return _GOOD
    return _because("MISSING_ENUM_SYMBOLS", f"{path}/symbols", f"[{', '.join(missing)}]")


def _mismatch(reader: AvroType, writer: AvroType, path: str) -> Verdict:
    message = f"reader type: {_caps(reader)} not compatible with writer type: {_caps(writer)}"
    return _because("TYPE_MISMATCH", path, message)


def _because(kind: str, path: str, message: str) -> Verdict:
    return (Incompatibility(kind=kind, path=path or "/", message=message),)


def _caps(kind: AvroType) -> str:
    return "RECORD" if kind.kind == "error" else kind.kind.upper()
