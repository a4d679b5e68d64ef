"""Documents: a schema and its references, looked up by URI, by pointer and by anchor. Nothing is ever fetched.

Knows base URIs, `$id`, anchors and JSON pointers in all drafts, and which draft a text is written in.
"""

from collections.abc import Iterator, Mapping
from typing import Final
from urllib.parse import unquote, urldefrag, urljoin

from streamhouse.errors import InvalidSchema
from streamhouse.schemas.base import References, read_json

ROOT_URI: Final = "file:///"
"""The base URI of a schema without an `$id`, against which relative references are resolved."""

Draft = int
DRAFTS: Final[Mapping[str, Draft]] = {
    "json-schema.org/draft-04/schema": 4,
    "json-schema.org/draft-06/schema": 6,
    "json-schema.org/draft-07/schema": 7,
    "json-schema.org/draft/2019-09/schema": 2019,
    "json-schema.org/draft/2020-12/schema": 2020,
}
DEFAULT_DRAFT: Final[Draft] = 7
_DATA: Final = frozenset({"enum", "const", "default", "examples"})


def draft_of(document: object) -> Draft:
    """The draft that `$schema` names; draft 7 where it names none that is known, as Confluent's registry has it."""
    name = document.get("$schema") if isinstance(document, dict) else None
    bare = name.partition("://")[2].rstrip("#") if isinstance(name, str) else ""
    return DRAFTS.get(bare, DEFAULT_DRAFT)


def is_meta_schema(uri: str) -> bool:
    """Whether this is one of JSON Schema's own meta-schemas, which are built in."""
    return uri.partition("://")[2].startswith(("json-schema.org/draft/", *DRAFTS))


def join(base: str, reference: str) -> str:
    """A reference as a whole URI; also below bases such as `urn:a`, which nothing else can be relative to."""
    if not reference or reference.startswith("#"):
        return urldefrag(base).url + reference
    try:
        return urljoin(base, reference)
    except ValueError:
        raise InvalidSchema(f"no URI: {reference[:200]!r}") from None


class Documents:
    """The root and the references of one schema."""

    def __init__(self, text: str, references: References) -> None:
        self.root = _checked(read_json(text), "")
        self.draft = draft_of(self.root)
        self.root_uri = join(ROOT_URI, _own_id(self.root, self.draft) or "")
        self.base_uri = urldefrag(self.root_uri).url if self.root_uri == _own_id(self.root, self.draft) else ROOT_URI
        self.named: dict[str, object] = {}
        """The references' documents, by every URI that means them."""
        self._resources: dict[str, object] = {}
        self._anchors: dict[str, object] = {}
        self._bases: dict[int, str] = {}
        self._drafts: dict[int, Draft] = {}
        self.references = {n: _checked(read_json(t, where=f"reference {n!r} "), n) for n, t in references.items()}
        for name, document in self.references.items():
            self._add_reference(name, document)
        self._register(urldefrag(self.root_uri).url, self.root)

    def _add_reference(self, name: str, document: object) -> None:
        uri = urldefrag(join(self.root_uri, name)).url
        self.named[uri] = document
        self.named.setdefault(urldefrag(join(uri, _own_id(document, draft_of(document)) or "")).url, document)
        # Up to draft 7 an `$id` beside a `$ref` doesn't count, but Confluent's registry lets the root's count.
        self.named.setdefault(urldefrag(join(ROOT_URI, name)).url, document)
        self._register(uri, document)
        self._resources.setdefault(urldefrag(name).url, document)

    def base_of(self, node: object) -> str:
        """The base URI of references inside a schema."""
        return self._bases.get(id(node), self.root_uri)

    def draft_at(self, node: object) -> Draft:
        """The draft that the document around a schema is written in."""
        return self._drafts.get(id(node), self.draft)

    def find(self, reference: str, base: str, path: str) -> object:
        """The schema that a reference means; None for one of JSON Schema's own."""
        if reference.startswith("#"):
            uri, fragment = urldefrag(base).url if "#" in base else base, reference[1:]
        else:
            uri, fragment = urldefrag(join(base, reference))
        document = self._resources.get(uri)
        if document is None:
            document = self._resources.get(urldefrag(reference).url)
        if document is None:
            if is_meta_schema(uri):
                return None
            raise InvalidSchema(
                f"unresolved reference, not among the schema's references: {reference[:200]!r}", path=path
            )
        if not fragment:
            return document
        if not fragment.startswith("/"):
            anchored = self._anchors.get(f"{uri}#{fragment}")
            if anchored is None:
                raise InvalidSchema(f"unresolved reference, no such anchor: {reference[:200]!r}", path=path)
            return anchored
        return self._point(document, fragment, reference, path)

    def _point(self, document: object, pointer: str, reference: str, path: str) -> object:
        current = document
        for step in pointer.split("/")[1:]:
            name = unquote(step).replace("~1", "/").replace("~0", "~")
            inside = _step(current, name)
            if inside is _NOTHING and name == "$defs" and current is document:
                inside = _step(current, "definitions")
            if inside is _NOTHING:
                raise InvalidSchema(f"unresolved reference, nothing is there: {reference[:200]!r}", path=path)
            current = inside
        if not isinstance(current, (dict, bool)):
            raise InvalidSchema(f"the reference means no schema: {reference[:200]!r}", path=path)
        return current

    def _register(self, uri: str, document: object) -> None:
        """Note every place inside a document that has an address of its own."""
        self._resources[uri] = document
        draft = draft_of(document)
        waiting = [(document, uri)]
        while waiting:
            node, base = waiting.pop()
            if isinstance(node, dict):
                self._drafts[id(node)] = draft
                base = self._note(node, base, draft)
            waiting += [(child, base) for child in _children(node)]

    def _note(self, node: dict[str, object], base: str, draft: Draft) -> str:
        own = _own_id(node, draft)
        if own is not None:
            joined, fragment = urldefrag(join(base, own))
            if fragment:
                self._anchors[f"{joined}#{fragment}"] = node
            if joined != base:
                self._resources.setdefault(joined, node)
                base = joined
        for word in ("$anchor", "$dynamicAnchor"):
            if isinstance(anchor := node.get(word), str):
                self._anchors.setdefault(f"{base}#{anchor}", node)
        self._bases[id(node)] = base
        return base


_NOTHING: Final = object()


def _step(node: object, name: str) -> object:
    if isinstance(node, dict):
        return node.get(name, _NOTHING)
    if isinstance(node, list) and name.isascii() and name.isdigit() and int(name) < len(node):
        return node[int(name)]
    return _NOTHING


def _children(node: object) -> Iterator[object]:
    if isinstance(node, dict):
        yield from (value for word, value in node.items() if word not in _DATA and isinstance(value, (dict, list)))
    elif isinstance(node, list):
        yield from (value for value in node if isinstance(value, (dict, list)))


def _own_id(node: object, draft: Draft) -> str | None:
    schema_id = node.get("id" if draft == 4 else "$id") if isinstance(node, dict) else None
    return schema_id if isinstance(schema_id, str) else None


def _checked(document: object, name: str) -> object:
    if isinstance(document, (dict, bool)):
        return document
    raise InvalidSchema("a schema is an object or a boolean", path=f"reference {name!r}" if name else "")
