"""Compiler: generates the Python function that decodes or encodes one version of one message.

Data path   codec (once per message, version and direction) -> **compiler** -> primitives
Owns        the translation from `schema` fields to straight-line code; the field of each line
Leaves      the cache and error texts to `codec`; the elements of the wire format to `primitives`
Invariant   nothing is allocated for a length before that length was compared with the available bytes

Generated functions are specific to a version, without checks of versions and calls per field. Adjacent fields of fixed
width share one `struct` call, together with the length that follows them: a *run*.
"""

import struct
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Final

from streamhouse.wire.kafka import primitives
from streamhouse.wire.kafka.primitives import FIXED, UUID_BYTES
from streamhouse.wire.kafka.schema import ZERO_UUID, Field, Message, WireType, fields_of

_TAGS: Final = "tagged fields"
_ALWAYS: Final = {
    "zero_uuid": ZERO_UUID,
    "pack": struct.pack,
    "unpack_from": struct.unpack_from,
    **{name: value for name, value in vars(primitives).items() if not name.startswith("_")},
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Compiled:
    """A function, and the field of each line of its source."""

    run: Callable[..., Any]
    fields: tuple[str, ...]


def compile_decoder(message: type[Message], version: int) -> Compiled:
    """Compile `decode(view, o, size, left, tags_left) -> (message, end)`; `left` is the maximum number of array
    elements, `tags_left` of tagged fields."""
    reader = _Reader(message, version)
    with reader.block("def decode(view, o, size, left, tags_left):"):
        reader.struct(message, "m")
        reader.flush()
        reader.add("return m, o")
    return reader.compiled("decode")


def compile_encoder(message: type[Message], version: int) -> Compiled:
    """Compile `encode(message) -> buffers`."""
    printer = _Printer(message, version)
    with printer.block("def encode(m):"):
        printer.add("buffers = []; out = bytearray()")
        printer.struct(message, "m")
        printer.flush()
        printer.add("if out: buffers.append(out)")
        printer.add("return buffers")
    return printer.compiled("encode")


class _Writer:
    """Source under construction: lines, the field of each, the names it uses, and the current run."""

    def __init__(self, message: type[Message], version: int) -> None:
        self.version = version
        self.flexible = version >= message.flexible_since
        self.scope: dict[str, Any] = dict(_ALWAYS)
        self.lines: list[str] = []
        self.fields: list[str] = []
        self.field = ""
        self._indent = 0
        self._names = 0
        self._run: list[tuple[str, str, str]] = []  # format, expression, field

    def add(self, line: str) -> None:
        self.lines.append(" " * self._indent + line)
        self.fields.append(self.field)

    @contextmanager
    def block(self, opening: str, *, within_run: bool = False) -> Iterator[None]:
        """An indented block. `within_run`: it only prepares values, so the run continues after it."""
        self.add(opening)
        self._indent += 1
        yield
        if not within_run:
            self.flush()
        self._indent -= 1

    def fresh(self, prefix: str) -> str:
        self._names += 1
        return f"{prefix}{self._names}"

    def put(self, code: str, expression: str = "") -> None:
        self._run.append((code, expression, self.field))

    def flush(self) -> None:
        """Write the run as one `struct` call."""
        if not self._run:
            return
        codes, expressions, names = zip(*self._run, strict=True)
        self._run = []
        here, self.field = self.field, names[0]
        if names[-1] != names[0]:
            self.field += f"..{names[-1].rpartition('.')[2]}"
        self.write_run("".join(codes), [each for each in expressions if each])
        self.field = here

    def write_run(self, codes: str, expressions: list[str]) -> None:
        raise NotImplementedError

    def name_of_struct(self, of: type) -> str:
        self.scope[of.__name__] = of
        return of.__name__

    def compact(self, field: Field) -> bool:
        return self.flexible and field.flexible

    def length_code(self, of: WireType) -> str:
        return "h" if of == "string" else "i"

    def tagged(self, of: type) -> list[Field]:
        tagged = (field for field in fields_of(of) if field.tag is not None and field.exists_in(self.version))
        return sorted(tagged, key=lambda field: field.tag or 0)

    def default(self, field: Field) -> str:
        """An expression for the default of a missing field."""
        if isinstance(field.default, type):
            return f"{self.name_of_struct(field.default)}()"
        return "zero_uuid" if field.default is ZERO_UUID else repr(field.default)

    def compiled(self, name: str) -> Compiled:
        exec(compile("\n".join(self.lines), f"<kafka {name}>", "exec"), self.scope)
        return Compiled(run=self.scope[name], fields=tuple(self.fields))


class _Reader(_Writer):
    """Writes the decoder: `o` is the offset to read at, `size` the length of `view`."""

    def write_run(self, codes: str, expressions: list[str]) -> None:
        if codes == "B":
            self.add(f"{expressions[0]} = view[o]; o += 1")
            return
        layout = struct.Struct(f">{codes}")
        unpack = f"unpack_{codes.replace('?', 'o')}"
        self.scope[unpack] = layout.unpack_from
        self.add(f"{', '.join(expressions)}, = {unpack}(view, o); o += {layout.size}")

    def struct(self, of: type, target: str) -> None:
        outer = self.field
        self.add(f"{target} = {self.name_of_struct(of)}()")
        for field in fields_of(of):
            if field.exists_in(self.version) and field.tag is None:
                self.field = f"{outer}.{field.name}".lstrip(".")
                self.value(field, field.type, f"{target}.{field.name}", field.may_be_null_in(self.version))
        if self.flexible:
            self.field = f"{outer}.{_TAGS}".lstrip(".")
            self.tags(self.tagged(of), target)
        self.field = outer

    def tags(self, known: list[Field], target: str) -> None:
        count, tag, length, end = map(self.fresh, ("n", "tag", "n", "end"))
        self.put("B", count)
        self.flush()
        with self.block(f"if {count}:"):
            self.add(f"if {count} > 127: {count}, o = long_uvarint(view, o, {count})")
            self.add(f"tags_left -= {count}")
            self.add("if tags_left < 0: raise ValueError('more tagged fields than a message may have')")
            if not known:
                self.add(f"o = skip_tags(view, o, size, {count})")
        if not known:
            return
        with self.block(f"for _ in range({count}):"):
            self.add(f"{tag}, o = read_uvarint(view, o)")
            self.add(f"{length}, o = read_uvarint(view, o)")
            self.add(f"{end} = o + {length}")
            self.add(f"if {end} > size: raise bad_length({length}, size - o)")
            for field in known:
                with self.block(f"if {tag} == {field.tag}:"):
                    self.value(field, field.type, f"{target}.{field.name}", field.may_be_null_in(self.version))
                    self.flush()
                    self.add(f"if o != {end}: raise ValueError('tag {field.tag} is not as long as it says')")
            self.add(f"o = {end}")

    def value(self, field: Field, of: WireType, target: str, nullable: bool) -> None:
        if isinstance(of, str) and of in FIXED:
            self.put(FIXED[of], target)
        elif of == "uuid":
            raw = self.fresh("raw")
            self.put(f"{UUID_BYTES}s", raw)
            self.flush()
            self.add(f"{target} = uuid_of({raw})")
        elif isinstance(of, type):
            self.nested(of, target, nullable)
        else:
            length = self.length(field, of)
            with self.unless_null(f"{length} == -1", target, nullable):
                self.array(field, of[0], target, length) if isinstance(of, list) else self.text(of, target, length)

    def nested(self, of: type, target: str, nullable: bool) -> None:
        present, inner = self.fresh("n"), self.fresh("m")
        if nullable:
            self.put("b", present)
            self.flush()
        with self.unless_null(f"{present} < 0", target, nullable):
            self.struct(of, inner)
            self.add(f"{target} = {inner}")

    @contextmanager
    def unless_null(self, test: str, target: str, nullable: bool) -> Iterator[None]:
        if not nullable:
            yield
            return
        self.add(f"if {test}: {target} = None")
        with self.block("else:"):
            yield

    def length(self, field: Field, of: WireType) -> str:
        """Read the length of what follows into a variable; -1 is null."""
        length = self.fresh("n")
        if not self.compact(field):
            self.put(self.length_code(of), length)
            self.flush()
            return length
        self.put("B", length)
        self.flush()
        with self.block(f"if {length} > 127:"):
            self.add(f"{length}, o = long_uvarint(view, o, {length})")
            if of == "string":
                self.add(f"if {length} > MAX_STRING_BYTES + 1: raise bad_length({length} - 1, size - o)")
        self.add(f"{length} -= 1")
        return length

    def text(self, of: str, target: str, length: str) -> None:
        end = self.fresh("end")
        self.add(f"{end} = o + {length}")
        self.add(f"if {length} < 0 or {end} > size: raise bad_length({length}, size - o)")
        piece = f"view[o:{end}]"
        content = {"string": f"str({piece}, 'utf-8')", "bytes": f"bytes({piece})", "records": piece}[of]
        self.add(f"{target} = {content}; o = {end}")

    def array(self, field: Field, of: str | type, target: str, length: str) -> None:
        least = max(1, self.least_bytes(of, compact=self.compact(field)))
        self.add(f"if {length} < 0 or {length} * {least} > size - o: raise bad_length({length}, size - o)")
        self.add(f"left -= {length}")
        self.add("if left < 0: raise TooManyElements('more array elements than a message may have')")
        if isinstance(of, str) and of in FIXED:
            self.add(f"{target} = list(unpack_from(f'>{{{length}}}{FIXED[of]}', view, o)); o += {length} * {least}")
            return
        items, item = self.fresh("items"), self.fresh("m")
        self.add(f"{target} = {items} = []")
        with self.block(f"for _ in range({length}):"):
            self.struct(of, item) if isinstance(of, type) else self.value(field, of, item, nullable=False)
            self.flush()
            self.add(f"{items}.append({item})")

    def least_bytes(self, of: WireType, *, compact: bool) -> int:
        """The minimum size of a value, for checking an array's length before anything is allocated."""
        if isinstance(of, type):
            present = [each for each in fields_of(of) if each.exists_in(self.version) and each.tag is None]
            return self.flexible + sum(
                1
                if each.is_struct and each.may_be_null_in(self.version)
                else self.least_bytes(each.type, compact=self.compact(each))
                for each in present
            )
        if isinstance(of, str) and of in FIXED:
            return struct.calcsize(f">{FIXED[of]}")
        if of == "uuid":
            return UUID_BYTES
        return 1 if compact else struct.calcsize(f">{self.length_code(of)}")


class _Printer(_Writer):
    """Writes the encoder: bytes go to `out`; records are not copied and go to `buffers` between them."""

    def write_run(self, codes: str, expressions: list[str]) -> None:
        if codes == "x":
            self.add("out.append(0)")
            return
        pack = f"pack_{codes.replace('?', 'o')}"
        self.scope[pack] = struct.Struct(f">{codes}").pack
        self.add(f"out += {pack}({', '.join(expressions)})")

    def struct(self, of: type, source: str) -> None:
        outer = self.field
        for field in fields_of(of):
            self.field = f"{outer}.{field.name}".lstrip(".")
            value = f"{source}.{field.name}"
            if not field.exists_in(self.version):
                if not field.ignorable:
                    self.add(f"if {self.is_set(field, value)}: raise ValueError('set, but not in this version')")
            elif field.tag is None:
                self.value(field, field.type, value, field.may_be_null_in(self.version))
        if self.flexible:
            self.field = f"{outer}.{_TAGS}".lstrip(".")
            self.tags(self.tagged(of), source)
        self.field = outer

    def is_set(self, field: Field, value: str) -> str:
        """A test whether a field differs from its default."""
        if field.default == []:
            return value
        return f"{value} is not None" if field.default is None else f"{value} != {self.default(field)}"

    def tags(self, known: list[Field], source: str) -> None:
        if not known:
            self.put("x")
            return
        count, tail, head = map(self.fresh, ("n", "tail", "head"))
        self.flush()
        self.add(f"{count} = 0; {tail} = b''")
        for field in known:
            value = f"{source}.{field.name}"
            with self.block(f"if {self.is_set(field, value)}:"):
                self.add(f"{head} = out; out = bytearray()")
                self.value(field, field.type, value, field.may_be_null_in(self.version))
                self.flush()
                self.add(f"{tail} += uvarint({field.tag}) + uvarint(len(out)) + out")
                self.add(f"{count} += 1; out = {head}")
        self.add(f"out.append({count}); out += {tail}")

    def value(self, field: Field, of: WireType, value: str, nullable: bool) -> None:
        if isinstance(of, str) and of in FIXED:
            self.put(FIXED[of], value)
        elif of == "uuid":
            self.put(f"{UUID_BYTES}s", f"{value}.bytes")
        elif isinstance(of, type):
            self.nested(of, value, nullable)
        else:
            content, length = self.fresh("v"), self.fresh("n")
            self.measure(of, value, content, length, nullable)
            self.length(field, of, length)
            self.content(field, of, content)

    def nested(self, of: type, value: str, nullable: bool) -> None:
        inner = self.fresh("m")
        self.add(f"{inner} = {value}")
        if not nullable:
            self.struct(of, inner)
            return
        self.flush()
        self.add(f"if {inner} is None: out.append(255)")
        with self.block("else:"):
            self.add("out.append(1)")
            self.struct(of, inner)

    def measure(self, of: WireType, value: str, content: str, length: str, nullable: bool) -> None:
        """Bind a value with a length prefix to a variable, and its length, or -1 for null, to another."""
        self.add(f"{content} = {value}")
        if not nullable:
            self.measure_present(of, content, length)
            return
        self.add(f"if {content} is None: {content} = b''; {length} = -1")
        with self.block("else:", within_run=True):
            self.measure_present(of, content, length)

    def measure_present(self, of: WireType, content: str, length: str) -> None:
        if of == "string":
            self.add(f"{content} = {content}.encode()")
        if of == "records":
            self.add(f"if not isinstance({content}, (list, tuple)): {content} = ({content},)")
            self.add(f"{length} = sum(map(len, {content}))")
        else:
            self.add(f"{length} = len({content})")

    def length(self, field: Field, of: WireType, length: str) -> None:
        if not self.compact(field):
            self.put(self.length_code(of), length)
            self.flush()
            return
        self.flush()
        self.add(f"{length} += 1")
        self.add(f"if {length} < 128: out.append({length})")
        self.add(f"else: out += {'long_string' if of == 'string' else 'uvarint'}({length})")

    def content(self, field: Field, of: WireType, content: str) -> None:
        if of == "records":
            self.add(f"buffers.append(out); buffers += {content}; out = bytearray()")
        elif not isinstance(of, list):
            self.add(f"out += {content}")
        elif isinstance(of[0], str) and of[0] in FIXED:
            self.add(f"out += pack(f'>{{len({content})}}{FIXED[of[0]]}', *{content})")
        else:
            item = self.fresh("m")
            with self.block(f"for {item} in {content}:"):
                if isinstance(of[0], type):
                    self.struct(of[0], item)
                else:
                    self.value(field, of[0], item, nullable=False)
