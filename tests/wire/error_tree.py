"""Every error that a wire needs a code for: the classes of all modules of `streamhouse.errors`."""

import importlib
import pkgutil
from collections.abc import Iterator

from streamhouse import errors
from streamhouse.errors import StreamhouseError


def every_error() -> list[type[StreamhouseError]]:
    """Found in the modules themselves, so one that the package doesn't hand on is found, too."""
    modules = [
        importlib.import_module(f"{errors.__name__}.{each.name}") for each in pkgutil.iter_modules(errors.__path__)
    ]
    names = {errors.__name__, *(module.__name__ for module in modules)}
    return list(dict.fromkeys(kind for kind in _below(StreamhouseError) if kind.__module__ in names))


def _below(root: type[StreamhouseError]) -> Iterator[type[StreamhouseError]]:
    for child in root.__subclasses__():
        yield child
        yield from _below(child)
