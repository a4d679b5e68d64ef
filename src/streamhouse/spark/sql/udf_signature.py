"""UDF signature: what a Python function of a user's does, as text that stays the same while its code does.

Data path   a function in a plan -> **function_text** -> `query_signature`
Owns        which parts of a function count: its code, its constants, defaults and what it refers to
Leaves      everything around it to `query_signature`

Where it stands in a file, comments and annotations aren't part of it. Modules count by their names.
"""

import hashlib
import pickle
from types import CodeType, FunctionType, ModuleType
from typing import Any, Final

from pyspark import cloudpickle

_UNPICKLABLE: Final = (pickle.PickleError, AttributeError, EOFError, ImportError, TypeError, ValueError)
_DEPTH: Final = 6
"""How far functions that a function calls are looked at."""


def function_text(function: Any) -> str:
    """Of a PythonFunction of the JVM's, which holds what Spark's workers are sent."""
    sent = bytes(int(byte) & 0xFF for byte in function.command().mkString(",").split(","))
    try:
        found = cloudpickle.loads(sent)
    except _UNPICKLABLE:
        return hashlib.sha256(sent).hexdigest()
    return hashlib.sha256(_told(found, _DEPTH).encode()).hexdigest()


def _told(value: Any, depth: int) -> str:
    if isinstance(value, FunctionType):
        return _function(value, depth) if depth else value.__qualname__
    if isinstance(value, CodeType):
        constants = [_told(each, depth) for each in value.co_consts]
        return f"code({value.co_code.hex()}, {value.co_names}, {value.co_varnames}, {constants})"
    if isinstance(value, ModuleType):
        return f"module {value.__name__}"
    if isinstance(value, tuple | list):
        return f"{type(value).__name__}({', '.join(_told(each, depth) for each in value)})"
    if isinstance(value, set | frozenset):
        return f"set({sorted(_told(each, depth) for each in value)})"
    if isinstance(value, dict):
        return f"dict({[(_told(key, depth), _told(each, depth)) for key, each in value.items()]})"
    if isinstance(value, str | bytes | int | float | bool | complex | type(None)):
        return repr(value)
    return _pickled(value)


def _function(function: FunctionType, depth: int) -> str:
    cells = [_told(cell.cell_contents, depth - 1) for cell in function.__closure__ or ()]
    used = {name: function.__globals__[name] for name in function.__code__.co_names if name in function.__globals__}
    defaults = (function.__defaults__, function.__kwdefaults__)
    parts = [_told(function.__code__, depth - 1), *cells, _told(defaults, depth - 1), _told(used, depth - 1)]
    return f"function({', '.join(parts)})"


def _pickled(value: Any) -> str:
    try:
        return hashlib.sha256(bytes(cloudpickle.dumps(value))).hexdigest()  # type: ignore[no-untyped-call]
    except _UNPICKLABLE:
        return type(value).__qualname__
