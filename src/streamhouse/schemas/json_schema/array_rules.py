"""Compatibility rules for arrays: open, closed and partly open, as with objects."""

from streamhouse.schemas.json_schema import schema_nodes
from streamhouse.schemas.json_schema.difference_kinds import Difference, Steps, at, breaks
from streamhouse.schemas.json_schema.object_rules import additional, unevaluated
from streamhouse.schemas.json_schema.scalar_rules import limit_differences
from streamhouse.schemas.json_schema.schema_nodes import Anything, Never, SchemaNode


def array_differences(original: schema_nodes.Array, update: schema_nodes.Array) -> Steps:
    differences = at("items", (yield (original.all_items, update.all_items)))
    for index in range(max(len(original.items), len(update.items))):
        differences += at(f"items/{index}", (yield from _item(original, update, index)))
    differences += at("additionalItems", (yield from additional("ITEMS", original, update)))
    differences += at("unevaluatedItems", (yield from unevaluated("ITEMS", original.unevaluated, update.unevaluated)))
    differences += limit_differences("MAX_ITEMS", "maxItems", original.max_items, update.max_items)
    differences += limit_differences("MIN_ITEMS", "minItems", original.min_items, update.min_items)
    if original.unique != update.unique:
        differences.append(Difference(f"UNIQUE_ITEMS_{'REMOVED' if original.unique else 'ADDED'}", "uniqueItems"))
    differences += limit_differences("MAX_CONTAINS", "maxContains", original.max_contains, update.max_contains)
    return differences + limit_differences("MIN_CONTAINS", "minContains", original.min_contains, update.min_contains)


def _item(original: schema_nodes.Array, update: schema_nodes.Array, index: int) -> Steps:
    if index >= len(update.items):
        return (yield from _removed(original.items[index], update))
    if index >= len(original.items):
        return (yield from _added(original, update.items[index]))
    return (yield (original.items[index], update.items[index]))


def _removed(old: SchemaNode, update: schema_nodes.Array) -> Steps:
    if _is_open(update):
        return [Difference("ITEM_REMOVED_FROM_OPEN_CONTENT_MODEL", "")]
    covering = _covering(update)
    if covering is not None:
        differences = yield (old, covering)
        verdict = "NOT" if breaks(differences) else "IS"
        return [*differences, Difference(f"ITEM_REMOVED_{verdict}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]
    if isinstance(old, Never):
        return [Difference("ITEM_WITH_FALSE_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]
    return [Difference("ITEM_REMOVED_FROM_CLOSED_CONTENT_MODEL", "")]


def _added(original: schema_nodes.Array, new: SchemaNode) -> Steps:
    if _is_open(original):
        kind = "ITEM_WITH_EMPTY_SCHEMA_ADDED" if isinstance(new, Anything) else "ITEM_ADDED"
        return [Difference(f"{kind}_TO_OPEN_CONTENT_MODEL", "")]
    covering = _covering(original)
    if covering is None:
        return [Difference("ITEM_ADDED_TO_CLOSED_CONTENT_MODEL", "")]
    differences = yield (covering, new)
    verdict = "NOT" if breaks(differences) else "IS"
    return [*differences, Difference(f"ITEM_ADDED_{verdict}_COVERED_BY_PARTIALLY_OPEN_CONTENT_MODEL", "")]


def _is_open(node: schema_nodes.Array) -> bool:
    if not node.allows_more or node.additional is not None:
        return False
    return node.unevaluated is None or isinstance(node.unevaluated, Anything)


def _covering(node: schema_nodes.Array) -> SchemaNode | None:
    if node.additional is not None:
        return node.additional
    if not node.allows_more or isinstance(node.unevaluated, (Never, Anything)):
        return None
    return node.unevaluated
