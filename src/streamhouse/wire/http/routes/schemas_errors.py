"""Errors of the schema registry: Confluent's error codes and messages.

Data path   errors of the registry -> **schemas_errors** -> {"error_code": 40401, "message": "Subject 'x' not found."}
Owns        the table from the error tree to error codes; errors of invalid requests to the registry
Leaves      problem details of the other routes to `wire.http.errors`

The first three digits of a five-digit code are the HTTP status.
"""

from collections.abc import Callable, Mapping
from typing import Any, Final, NamedTuple

from streamhouse import errors
from streamhouse.wire.http.errors import Refusal, status_of


class RegistryError(NamedTuple):
    """The response to a rejected or failed request."""

    status: int
    error_code: int
    message: str


class RegistryFault(errors.Rejected):
    """The request is invalid, with one of Confluent's error codes."""

    def __init__(self, error_code: int, message: str) -> None:
        super().__init__(message)
        self.response = RegistryError(error_code // 100 if error_code > 999 else error_code, error_code, message)


def invalid_version(text: str) -> RegistryFault:
    return RegistryFault(
        42202,
        f"The specified version '{text[:100]}' is not a valid version id. Allowed values are between [1, 2^31-1] "
        'and the string "latest"',
    )


def invalid_body(why: str) -> RegistryFault:
    return RegistryFault(42201, f"Invalid schema request: {why}")


_Describe = Callable[[Any], str]

CODES: Final[Mapping[type[errors.StreamhouseError], tuple[int, _Describe]]] = {
    errors.UnknownSubject: (40401, lambda e: f"Subject '{e.subject}' not found."),
    errors.UnknownVersion: (40402, lambda e: f"Version {e.version} not found."),
    errors.UnknownSchema: (40403, lambda e: f"Schema{'' if e.schema_id is None else f' {e.schema_id}'} not found"),
    errors.SubjectSoftDeleted: (
        40404,
        lambda e: f"Subject '{e.subject}' was soft deleted. Set permanent=true to delete permanently",
    ),
    errors.SubjectNotSoftDeleted: (
        40405,
        lambda e: f"Subject '{e.subject}' was not deleted first before being permanently deleted",
    ),
    errors.VersionSoftDeleted: (
        40406,
        lambda e: (
            f"Subject '{e.subject}' Version {e.version} was soft deleted. Set permanent=true to delete permanently"
        ),
    ),
    errors.VersionNotSoftDeleted: (
        40407,
        lambda e: f"Subject '{e.subject}' Version {e.version} was not deleted first before being permanently deleted",
    ),
    errors.NotConfigured: (
        40408,
        lambda e: f"Subject '{e.subject}' does not have subject-level compatibility configured",
    ),
    errors.NoMode: (40409, lambda e: f"Subject '{e.subject}' does not have subject-level mode configured"),
    errors.IncompatibleSchema: (
        409,
        lambda e: (
            f'Schema being registered is incompatible with an earlier schema for subject "{e.subject}", '
            f"details: [{', '.join(e.reasons)}]"
        ),
    ),
    errors.InvalidSchema: (42201, lambda e: f"Invalid schema at {e.path}: {e.reason}"),
    errors.SchemaLimit: (42201, lambda e: f"Invalid schema: {e}"),
    errors.ModeRefused: (42205, lambda e: e.why),
    errors.SchemaIdTaken: (
        42205,
        lambda e: (
            f"Overwrite new schema with id {e.schema_id} (subject '{e.subject}', version {e.version}) is not permitted."
        ),
    ),
    errors.ReferenceExists: (
        42206,
        lambda e: f"One or more references exist to the schema {{subject={e.subject},version={e.version}}}.",
    ),
    errors.InvalidSubject: (42208, lambda e: f"The specified subject '{e.subject}' is not a valid subject."),
    errors.NotAuthenticated: (40101, str),
    errors.AccessDenied: (40301, str),
    errors.Unavailable: (50001, lambda e: f"Error in the backend data store: {e}"),
}


def registry_error(error: errors.StreamhouseError) -> RegistryError:
    """The response for an error."""
    if isinstance(error, RegistryFault):
        return error.response
    if not isinstance(error, Refusal):
        for cls in type(error).__mro__:
            if cls in CODES:
                code, say = CODES[cls]
                return RegistryError(code // 100 if code > 999 else code, code, say(error))
    return RegistryError(status_of(error), status_of(error), str(error))
