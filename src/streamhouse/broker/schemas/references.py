"""References: resolves the schemas that a schema refers to, directly and indirectly.

Data path   schema_cache, registration -> **references** -> metadata store
Owns        reading them all with few queries; the order and names in which the parser gets them; rejecting missing
            or too many references
Leaves      what a name means inside a schema to its language

A version can only refer to versions that exist when it is registered, and those never change. So there are no cycles;
each version is read once.
"""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Final, NamedTuple

from streamhouse.errors import InvalidSchema, SchemaLimit
from streamhouse.model.schema import Reference, RegisteredSchema, Subject, VersionKey
from streamhouse.stores.metadata.base import MetadataStore

LATEST: Final = -1


class ResolvedReferences(NamedTuple):
    """`texts` are the referenced schemas for the parser, dependencies first; `needs` are the direct references."""

    texts: Mapping[str, str]
    references: tuple[Reference, ...]
    needs: tuple[VersionKey, ...]


NOTHING: Final = ResolvedReferences({}, (), ())


async def resolve(
    store: MetadataStore, subject: Subject, references: Sequence[Reference], *, limit: int, live: bool
) -> ResolvedReferences:
    """Resolve the references of a schema of this subject; with `live`, deleted versions can't be referred to."""
    if not references:
        return NOTHING
    direct = [await _numbered(store, subject, each) for each in references]
    resolved: dict[VersionKey, RegisteredSchema] = {}
    pending = {key_of(subject, each): each for each in direct}
    while pending:
        if len(resolved) + len(pending) > limit:
            raise SchemaLimit("too many references", limit=limit, setting="schemas.max_references")
        read = {VersionKey(each.subject, each.version): each for each in await store.schema_versions([*pending])}
        _check_present(pending, read, live=live and not resolved)
        resolved |= read
        pending = {key: each for key, each in _needed_by(read.values()) if key not in resolved}
    needs = tuple(dict.fromkeys(key_of(subject, each) for each in direct))
    return ResolvedReferences(_in_order(subject, direct, resolved), tuple(direct), needs)


def key_of(subject: Subject, reference: Reference) -> VersionKey:
    return VersionKey(subject.beside(reference.subject), reference.version)


async def _numbered(store: MetadataStore, subject: Subject, reference: Reference) -> Reference:
    if reference.version != LATEST:
        return reference
    latest = await store.latest_version(subject.beside(reference.subject))
    if latest is None:
        raise _missing(reference, "the subject has no version")
    return reference._replace(version=latest.version)


def _check_present(
    pending: Mapping[VersionKey, Reference], read: Mapping[VersionKey, RegisteredSchema], *, live: bool
) -> None:
    for key, reference in pending.items():
        if key not in read:
            raise _missing(reference, "there is no such version")
        if live and read[key].deleted:
            raise _missing(reference, "it was deleted")


def _missing(reference: Reference, why: str) -> InvalidSchema:
    return InvalidSchema(
        f"a reference can't be resolved: {why}; subject={reference.subject} version={reference.version}",
        path=f"references/{reference.name}",
    )


def _needed_by(schemas: Iterable[RegisteredSchema]) -> Iterator[tuple[VersionKey, Reference]]:
    for each in schemas:
        for reference in each.schema.references:
            yield key_of(each.subject, reference), reference


def _in_order(
    subject: Subject, direct: Sequence[Reference], resolved: Mapping[VersionKey, RegisteredSchema]
) -> Mapping[str, str]:
    """Texts by name; if a name occurs twice, the direct reference wins. Depth first, without recursion."""
    texts: dict[str, str] = {each.name: resolved[key_of(subject, each)].schema.text for each in direct}
    ordered: dict[str, str] = {}
    stack: list[tuple[Subject, Reference, bool]] = [(subject, each, False) for each in reversed(direct)]
    seen: set[VersionKey] = set()
    while stack:
        owner, reference, is_done = stack.pop()
        key = key_of(owner, reference)
        if is_done:
            ordered.setdefault(reference.name, texts.get(reference.name, resolved[key].schema.text))
        elif key not in seen or reference.name not in ordered:
            stack.append((owner, reference, True))
            if key not in seen:
                seen.add(key)
                stack += [(key.subject, each, False) for each in reversed(resolved[key].schema.references)]
    return ordered
