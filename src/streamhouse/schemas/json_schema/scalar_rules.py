"""Compatibility rules for strings, numbers and fixed values."""

from fractions import Fraction

from streamhouse.schemas.json_schema import schema_nodes
from streamhouse.schemas.json_schema.difference_kinds import Difference
from streamhouse.schemas.json_schema.schema_nodes import SchemaNode


def scalar_differences(original: SchemaNode, update: SchemaNode) -> list[Difference]:
    """Between two nodes of the same kind; kinds with nothing to compare have none."""
    match original, update:
        case schema_nodes.Text(), schema_nodes.Text():
            return _texts(original, update)
        case schema_nodes.Number(), schema_nodes.Number():
            return _numbers(original, update)
        case schema_nodes.Enum(), schema_nodes.Enum():
            return _enums(original, update)
        case schema_nodes.Const(), schema_nodes.Const() if original.value != update.value:
            return [Difference("ENUM_ARRAY_CHANGED", "const")]
    return []


def limit_differences(kind: str, word: str, old: float | None, new: float | None) -> list[Difference]:
    """Compare an optional limit: added, removed, increased, decreased."""
    if old is None and new is None:
        return []
    if old is None:
        change = "ADDED"
    elif new is None:
        change = "REMOVED"
    elif old == new:
        return []
    else:
        change = "INCREASED" if old < new else "DECREASED"
    return [Difference(f"{kind}_{change}", word)]


def _texts(original: schema_nodes.Text, update: schema_nodes.Text) -> list[Difference]:
    differences = limit_differences("MAX_LENGTH", "maxLength", original.max_length, update.max_length)
    differences += limit_differences("MIN_LENGTH", "minLength", original.min_length, update.min_length)
    if original.pattern != update.pattern:
        change = "ADDED" if original.pattern is None else "REMOVED" if update.pattern is None else "CHANGED"
        differences.append(Difference(f"PATTERN_{change}", "pattern"))
    return differences


def _numbers(original: schema_nodes.Number, update: schema_nodes.Number) -> list[Difference]:
    differences = limit_differences("MAXIMUM", "maximum", original.maximum, update.maximum)
    differences += limit_differences("MINIMUM", "minimum", original.minimum, update.minimum)
    above, below = ("EXCLUSIVE_MINIMUM", "exclusiveMinimum"), ("EXCLUSIVE_MAXIMUM", "exclusiveMaximum")
    differences += limit_differences(*below, original.exclusive_maximum, update.exclusive_maximum)
    differences += limit_differences(*above, original.exclusive_minimum, update.exclusive_minimum)
    differences += _multiples(original.multiple_of, update.multiple_of)
    if original.is_integer != update.is_integer:
        differences.append(Difference("TYPE_EXTENDED" if original.is_integer else "TYPE_NARROWED", ""))
    return differences


def _multiples(old: float | None, new: float | None) -> list[Difference]:
    if old == new:
        return []
    if old is None or new is None:
        change = "ADDED" if old is None else "REMOVED"
    elif _is_multiple(new, old):
        change = "EXPANDED"
    else:
        change = "REDUCED" if _is_multiple(old, new) else "CHANGED"
    return [Difference(f"MULTIPLE_OF_{change}", "multipleOf")]


def _is_multiple(number: float, of: float) -> bool:
    # As people write them: 0.3 is a multiple of 0.1, which binary fractions deny.
    return of != 0 and Fraction(str(number)) % Fraction(str(of)) == 0


def _enums(original: schema_nodes.Enum, update: schema_nodes.Enum) -> list[Difference]:
    if original.values == update.values:
        return []
    if original.values <= update.values:
        return [Difference("ENUM_ARRAY_EXTENDED", "enum")]
    return [Difference("ENUM_ARRAY_NARROWED" if update.values <= original.values else "ENUM_ARRAY_CHANGED", "enum")]
