"""Quick: plain values of options and arguments are understood without pydantic.

Owns        texts, whole numbers, choices, paths and lists of them, where nothing can be wrong with them
Leaves      everything else, and all that is wrong, to typer, which imports pydantic for it

Typer asks pydantic even about an option that was not given, and that import takes as long as all others together.
Where typer's inside is not as expected, nothing is changed and commands only start slower.
"""

from pathlib import Path
from typing import Any, Final, Literal, get_args, get_origin

UNSURE: Final = object()
_PATH_CHECKS: Final = ("exists", "resolve_path", "writable")


def quicken(param: Any) -> None:
    """Put our own way before typer's, once."""
    if getattr(param, "_runtime_param", param) is None and hasattr(param, "type_descriptor"):
        param._runtime_param = QuickCoercion()


class QuickCoercion:
    """Stands where typer keeps its own, and steps aside for it."""

    def coerce(self, value: Any, *, param: Any, ctx: Any) -> Any:
        descriptor = param.type_descriptor
        found = understood(value, descriptor.annotation, param.default, descriptor.parameter_info)
        if found is not UNSURE:
            return found
        param._runtime_param = None
        return param.get_runtime_param().coerce(value, param=param, ctx=ctx)


def understood(value: Any, annotation: Any, default: Any, info: Any) -> Any:
    """The value that a command gets, or `UNSURE`."""
    is_list = get_origin(annotation) is list
    if value is None:
        return () if is_list else None
    if default is not None and value is default:
        return value
    if not is_list:
        return _understood_one(value, annotation, info)
    if not isinstance(value, list | tuple):
        return UNSURE
    found = [_understood_one(one, get_args(annotation)[0], info) for one in value]
    return UNSURE if any(one is UNSURE for one in found) else found


def _understood_one(value: Any, annotation: Any, info: Any) -> Any:
    if not isinstance(value, str) or getattr(info, "parser", None) or getattr(info, "click_type", None):
        return UNSURE
    if annotation is str:
        return value
    if annotation is int:
        return _whole_number(value, info)
    if get_origin(annotation) is Literal:
        return value if value in get_args(annotation) else UNSURE
    if annotation is Path:
        return UNSURE if any(getattr(info, ask, False) for ask in _PATH_CHECKS) else Path(value)
    return UNSURE


def _whole_number(value: str, info: Any) -> Any:
    if not (value.isascii() and value.isdigit()):
        return UNSURE
    number = int(value)
    low, high = getattr(info, "min", None), getattr(info, "max", None)
    fits = (low is None or number >= low) and (high is None or number <= high)
    return number if fits else UNSURE
