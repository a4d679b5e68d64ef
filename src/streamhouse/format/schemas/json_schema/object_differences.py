"""Differences between what two schemas say of objects.

A schema of objects is open when it lets any other property in, closed when it lets none in, and partly open when others
must fit a pattern's schema or one for all the rest. Properties may leave an open schema and may enter a closed one;
with a partly open one it depends on whether that schema takes them in.
"""

from streamhouse.format.schemas.json_schema import shapes
from streamhouse.format.schemas.json_schema.kinds import Difference, Matches, Steps, at, breaks
from streamhouse.format.schemas.json_schema.scalar_differences import limit_differences
from streamhouse.format.schemas.json_schema.shapes import MISSING, Anything, Never, Shape


def object_differences(matches: Matches, original: shapes.Object, update: shapes.Object) -> Steps:
    found = at("required", _required(original, update))
    for name in dict.fromkeys((*original.properties, *update.properties)):
        found += at(f"properties/{name}", (yield from _property(matches, original, update, name)))
    found += at("dependencies", (yield from _dependencies(original, update)))
    found += at("additionalProperties", (yield from additional("PROPERTIES", original, update)))
    found += at(
        "unevaluatedProperties", (yield from unevaluated("PROPERTIES", original.unevaluated, update.unevaluated))
    )
    found += limit_differences("MAX_PROPERTIES", "maxProperties", original.max_properties, update.max_properties)
    return found + limit_differences("MIN_PROPERTIES", "minProperties", original.min_properties, update.min_properties)


def additional(what: str, original: shapes.Object | shapes.Array, update: shapes.Object | shapes.Array) -> Steps:
    """Of the schema for all the rest; without one, anything goes, unless no more is allowed."""
    if original.allows_more != update.allows_more:
        change = "ADDED" if update.allows_more else "REMOVED"
    elif (original.additional is None) == (update.additional is None):
        return (yield (original.additional, update.additional))
    else:
        change = "NARROWED" if original.additional is None else "EXTENDED"
    return [Difference(f"ADDITIONAL_{what}_{change}", "")]


def unevaluated(what: str, old: Shape | None, new: Shape | None) -> Steps:
    """Of the schema for what nothing else speaks of; without one, anything goes."""
    if old is None and new is None:
        return []
    if isinstance(new, Never) and not isinstance(old, Never):
        change = "REMOVED"
    elif isinstance(old, Never) and not isinstance(new, Never):
        change = "ADDED"
    elif old is None or (isinstance(old, Anything) and new is not None and not isinstance(new, Anything)):
        change = "NARROWED"
    elif new is None or (isinstance(new, Anything) and not isinstance(old, Anything)):
        change = "EXTENDED"
    else:
        return (yield (old, new))
    return [Difference(f"UNEVALUATED_{what}_{change}", "")]


def _required(original: shapes.Object, update: shapes.Object) -> list[Difference]:
    found: list[Difference] = []
    for name in original.properties:
        if name not in update.properties or (name in original.required) == (name in update.required):
            continue
        if name in original.required:
            kind = "REQUIRED_ATTRIBUTE_REMOVED"
        elif _has_default(update, name):
            kind = "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED"
        else:
            kind = "REQUIRED_ATTRIBUTE_ADDED"
        found.append(Difference(kind, name))
    return found


def _property(matches: Matches, original: shapes.Object, update: shapes.Object, name: str) -> Steps:
    if name not in update.properties:
        return (yield from _removed(matches, original.properties[name], update, name))
    if name not in original.properties:
        return (yield from _added(matches, original, update, name))
    return (yield (original.properties[name], update.properties[name]))


def _removed(matches: Matches, old: Shape, update: shapes.Object, name: str) -> Steps:
    """Only what the update still lets in matters."""
    if _is_open(update):
        return [Difference("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", "")]
    covering = _covering(matches, update, name)
    if covering is not None:
        found = yield (old, covering)
        verdict = "NOT" if breaks(found) else "IS"
        return [*found, Difference(f"PROPERTY_REMOVED_{verdict}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]
    if isinstance(old, Never):
        return [Difference("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]
    return [Difference("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]


def _added(matches: Matches, original: shapes.Object, update: shapes.Object, name: str) -> Steps:
    """Only what the original let in before matters: it may be there already, and be something else."""
    new = update.properties[name]
    is_open = _is_open(original)
    if is_open and isinstance(new, Anything):
        return [Difference("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", "")]
    found: list[Difference] = []
    covering = None if is_open else _covering(matches, original, name)
    if covering is not None:
        found = list((yield (covering, new)))
        verdict = "NOT" if breaks(found) else "IS"
        found.append(Difference(f"PROPERTY_ADDED_{verdict}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", ""))
    if name not in update.required:
        need = "OPTIONAL_PROPERTY"
    else:
        need = "REQUIRED_PROPERTY_WITH_DEFAULT" if _has_default(update, name) else "REQUIRED_PROPERTY"
    return [*found, Difference(f"{need}_ADDED_TO_{'OPEN' if is_open else 'UNOPEN'}_CONTENT_MODEL", "")]


def _dependencies(original: shapes.Object, update: shapes.Object) -> Steps:
    found: list[Difference] = []
    for name in dict.fromkeys((*original.needs, *update.needs)):
        change = _needs_change(original.needs.get(name), update.needs.get(name))
        found += [Difference(f"DEPENDENCY_ARRAY_{change}", name)] if change else []
    for name in dict.fromkeys((*original.needs_shape, *update.needs_shape)):
        old, new = original.needs_shape.get(name), update.needs_shape.get(name)
        if old is None or new is None:
            found.append(Difference(f"DEPENDENCY_SCHEMA_{'ADDED' if old is None else 'REMOVED'}", name))
        else:
            found += at(name, (yield (old, new)))
    return found


def _needs_change(old: frozenset[str] | None, new: frozenset[str] | None) -> str | None:
    if old == new:
        return None
    if old is None or new is None:
        return "ADDED" if old is None else "REMOVED"
    if old < new:
        return "EXTENDED"
    return "NARROWED" if new < old else "CHANGED"


def _is_open(shape: shapes.Object) -> bool:
    if not shape.allows_more or shape.additional is not None or shape.pattern_properties:
        return False
    return shape.unevaluated is None or isinstance(shape.unevaluated, Anything)


def _covering(matches: Matches, shape: shapes.Object, name: str) -> Shape | None:
    """What a property that isn't named must fit, if there is such a schema."""
    for pattern, covering in shape.pattern_properties.items():
        if matches(pattern, name):
            return covering
    if shape.additional is not None:
        return shape.additional
    if not shape.allows_more or isinstance(shape.unevaluated, (Never, Anything)):
        return None
    return shape.unevaluated


def _has_default(shape: shapes.Object, name: str) -> bool:
    return shape.properties[name].default is not MISSING
