"""Key order, also from buckets that list like a file system.

Data path   a bucket's pages -> **ordering** -> whoever lists
Owns        turning directory order into key order, holding back as little as possible
Leaves      fetching pages to the bucket's module

A bucket that keeps directories lists `a/b/1` before `a/b-c`, because it compares `b` with `b-c`; by key it is the other
way round, as `-` comes before `/`. Only names that begin with the directory's name and go on with a character below `/`
can be out of place, and in directory order they follow it directly. So these families are held back and sorted, and
everything else passes. Pages that are in key order already stay as they are.
"""

from collections.abc import AsyncIterator
from operator import attrgetter

from streamhouse.stores.objects.base import ObjectMeta


async def in_key_order(found: AsyncIterator[ObjectMeta], prefix: str) -> AsyncIterator[ObjectMeta]:
    """The same objects by key; they come in key order or in directory order, and all lie below `prefix`."""
    family: list[ObjectMeta] = []
    root = ""
    async for meta in found:
        name = meta.key[len(prefix) :].partition("/")[0]
        if family and not _is_related(name, root):
            for each in sorted(family, key=attrgetter("key")):
                yield each
            family.clear()
        if not family:
            root = name
        family.append(meta)
    for each in sorted(family, key=attrgetter("key")):
        yield each


def _is_related(name: str, root: str) -> bool:
    """Whether an object below `name` may belong before one below `root`, which came earlier."""
    return name == root or (name.startswith(root) and name[len(root)] < "/")
