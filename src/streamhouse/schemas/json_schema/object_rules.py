"""Compatibility rules for objects.

A schema of objects is open if it allows any other property, closed if it allows none, and partly open if others must
fit a pattern's schema or one for all the rest. Properties may be removed from an open schema and added to a closed one;
with a partly open one it depends on whether that schema accepts them.
"""

from streamhouse.schemas.json_schema import schema_nodes
from streamhouse.schemas.json_schema.difference_kinds import Difference, Matches, Steps, at, breaks
from streamhouse.schemas.json_schema.scalar_rules import limit_differences
from streamhouse.schemas.json_schema.schema_nodes import MISSING, Anything, Never, SchemaNode


def object_differences(matches: Matches, original: schema_nodes.Object, update: schema_nodes.Object) -> Steps:
    differences = at("required", _required(original, update))
    for name in dict.fromkeys((*original.properties, *update.properties)):
        differences += at(f"properties/{name}", (yield from _property(matches, original, update, name)))
    differences += at("dependencies", (yield from _dependencies(original, update)))
    differences += at("additionalProperties", (yield from additional("PROPERTIES", original, update)))
    differences += at(
        "unevaluatedProperties", (yield from unevaluated("PROPERTIES", original.unevaluated, update.unevaluated))
    )
    differences += limit_differences("MAX_PROPERTIES", "maxProperties", original.max_properties, update.max_properties)
    return differences + limit_differences(
        "MIN_PROPERTIES", "minProperties", original.min_properties, update.min_properties
    )


def additional(
    what: str, original: schema_nodes.Object | schema_nodes.Array, update: schema_nodes.Object | schema_nodes.Array
) -> Steps:
    """Compare the schemas for all other items; without one, any item is valid, unless more items are forbidden."""
    if original.allows_more != update.allows_more:
        change = "ADDED" if update.allows_more else "REMOVED"
    elif (original.additional is None) == (update.additional is None):
        return (yield (original.additional, update.additional))
    else:
        change = "NARROWED" if original.additional is None else "EXTENDED"
    return [Difference(f"ADDITIONAL_{what}_{change}", "")]


def unevaluated(what: str, old: SchemaNode | None, new: SchemaNode | None) -> Steps:
    """Compare the schemas for properties that no other keyword covers; without one, any value is valid."""
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


def _required(original: schema_nodes.Object, update: schema_nodes.Object) -> list[Difference]:
    differences: list[Difference] = []
    for name in original.properties:
        if name not in update.properties or (name in original.required) == (name in update.required):
            continue
        if name in original.required:
            kind = "REQUIRED_ATTRIBUTE_REMOVED"
        elif _has_default(update, name):
            kind = "REQUIRED_ATTRIBUTE_WITH_DEFAULT_ADDED"
        else:
            kind = "REQUIRED_ATTRIBUTE_ADDED"
        differences.append(Difference(kind, name))
    return differences


def _property(matches: Matches, original: schema_nodes.Object, update: schema_nodes.Object, name: str) -> Steps:
    if name not in update.properties:
        return (yield from _removed(matches, original.properties[name], update, name))
    if name not in original.properties:
        return (yield from _added(matches, original, update, name))
    return (yield (original.properties[name], update.properties[name]))


def _removed(matches: Matches, old: SchemaNode, update: schema_nodes.Object, name: str) -> Steps:
    """Only what the update still lets in matters."""
    if _is_open(update):
        return [Difference("PROPERTY_REMOVED_FROM_OPEN_CONTENT_MODEL", "")]
    covering = _covering(matches, update, name)
    if covering is not None:
        differences = yield (old, covering)
        verdict = "NOT" if breaks(differences) else "IS"
        return [*differences, Difference(f"PROPERTY_REMOVED_{verdict}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]
    if isinstance(old, Never):
        return [Difference("PROPERTY_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]
    return [Difference("PROPERTY_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]


def _added(matches: Matches, original: schema_nodes.Object, update: schema_nodes.Object, name: str) -> Steps:
    """Only what the original let in before matters: it may be there already, and be something else."""
    new = update.properties[name]
    is_open = _is_open(original)
    if is_open and isinstance(new, Anything):
        return [Difference("PROPERTY_WITH_EMPTY_SCHEMA_ADDED_TO_OPEN_CONTENT_MODEL", "")]
    differences: list[Difference] = []
    covering = None if is_open else _covering(matches, original, name)
    if covering is not None:
        differences = list((yield (covering, new)))
        verdict = "NOT" if breaks(differences) else "IS"
        differences.append(Difference(f"PROPERTY_ADDED_{verdict}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", ""))
    if name not in update.required:
        need = "OPTIONAL_PROPERTY"
    else:
        need = "REQUIRED_PROPERTY_WITH_DEFAULT" if _has_default(update, name) else "REQUIRED_PROPERTY"
    return [*differences, Difference(f"{need}_ADDED_TO_{'OPEN' if is_open else 'UNOPEN'}_CONTENT_MODEL", "")]


def _dependencies(original: schema_nodes.Object, update: schema_nodes.Object) -> Steps:
    differences: list[Difference] = []
    for name in dict.fromkeys((*original.needs, *update.needs)):
        change = _needs_change(original.needs.get(name), update.needs.get(name))
        differences += [Difference(f"DEPENDENCY_ARRAY_{change}", name)] if change else []
    for name in dict.fromkeys((*original.dependent_nodes, *update.dependent_nodes)):
        old, new = original.dependent_nodes.get(name), update.dependent_nodes.get(name)
        if old is None or new is None:
            differences.append(Difference(f"DEPENDENCY_SCHEMA_{'ADDED' if old is None else 'REMOVED'}", name))
        else:
            differences += at(name, (yield (old, new)))
    return differences


def _needs_change(old: frozenset[str] | None, new: frozenset[str] | None) -> str | None:
    if old == new:
        return None
    if old is None or new is None:
        return "ADDED" if old is None else "REMOVED"
    if old < new:
        return "EXTENDED"
    return "NARROWED" if new < old else "CHANGED"


def _is_open(node: schema_nodes.Object) -> bool:
    if not node.allows_more or node.additional is not None or node.pattern_properties:
        return False
    return node.unevaluated is None or isinstance(node.unevaluated, Anything)


def _covering(matches: Matches, node: schema_nodes.Object, name: str) -> SchemaNode | None:
    """The schema of properties without one of their own, if any."""
    for pattern, covering in node.pattern_properties.items():
        if matches(pattern, name):
            return covering
    if node.additional is not None:
        return node.additional
    if not node.allows_more or isinstance(node.unevaluated, (Never, Anything)):
        return None
    return node.unevaluated


def _has_default(node: schema_nodes.Object, name: str) -> bool:
    return node.properties[name].default is not MISSING
