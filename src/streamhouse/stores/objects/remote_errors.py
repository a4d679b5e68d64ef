"""Errors of cloud object stores: one table from their responses to our errors.

Data path   errors of a bucket's client -> **remote_errors** -> errors of `ObjectStore`
Owns        which responses are temporary, which need an operator, and what to do
Leaves      retries to `retrying`, slowing down to `adaptive`

Texts are built from status and error code. Texts of the server or client are never passed on: they may be long, and
addresses may contain signatures.
"""

import re
from dataclasses import dataclass
from typing import Final

from obstore.exceptions import AlreadyExistsError, PreconditionError

from streamhouse.errors import StreamhouseError, Unavailable
from streamhouse.stores.objects.base import ObjectExists, ObjectMissing, Refused, Throttled, Unreachable

_STATUS: Final = re.compile(r"status code: (\d{3})")
_CODE: Final = re.compile(r"<Code>\s*([A-Za-z0-9.]{1,64})\s*</Code>")
_REGION: Final = re.compile(r"<Region>\s*([a-z0-9-]{1,32})\s*</Region>")
_KIND: Final = re.compile(r"HttpError \{\s*kind: (\w{1,32})")
_CREDENTIALS: Final = re.compile(
    r"/latest/(api/token|meta-data)|AssumeRole|computeMetadata|metadata\.google|/metadata/identity|/oauth2|"
    r"security-credentials|InvalidCredentials|MissingAccessKey|[Cc]redential"
)
# The machine's metadata service for credentials, which fails if there are none, or if containers can't reach it.
_MACHINE: Final = re.compile(
    r"performing [A-Z]+ \S*(/latest/(api/token|meta-data)|computeMetadata|metadata\.google|/metadata/identity)\b.*"
    r"status code: 4"
)

RIGHTS: Final = "s3:PutObject, s3:GetObject, s3:DeleteObject and s3:ListBucket, or what your cloud calls them"
_NO_BUCKET: Final = ("the bucket does not exist", "create it, or correct the name in --store")
_NO_RIGHTS: Final = ("these credentials may not do this", f"grant {RIGHTS}, on bucket and prefix")
_BAD_KEY: Final = ("the credentials are not valid", "check the access key, and the session token if there is one")
_BAD_SECRET: Final = ("the secret key is wrong", "check AWS_SECRET_ACCESS_KEY, or your cloud's counterpart")
_NO_CREDENTIALS: Final = (
    "no credentials were found",
    "set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, GOOGLE_APPLICATION_CREDENTIALS or AZURE_STORAGE_ACCOUNT_KEY",
)
_CLOCK: Final = ("this machine's clock and the store's differ too much", "synchronise the clock of this machine")
_REGION_WRONG: Final = ("the bucket is in another region", "set AWS_REGION to the region of the bucket")
_NO_REGION: Final = ("the store has no such region", "set AWS_REGION to one of its own; Cloudflare R2's is auto")
_NO_RANGES: Final = ("it answers ranged reads with other bytes", "use a store that supports ranges and suffix ranges")
_NOT_OFFERED: Final = ("the store does not offer a request that is needed", "use a store with conditional writes")

_REJECTIONS: Final = {
    "NoSuchBucket": _NO_BUCKET,
    "ContainerNotFound": _NO_BUCKET,
    "InvalidBucketName": _NO_BUCKET,
    "AccessDenied": _NO_RIGHTS,
    "AllAccessDisabled": _NO_RIGHTS,
    "AuthorizationFailure": _NO_RIGHTS,
    "AuthorizationPermissionMismatch": _NO_RIGHTS,
    "InvalidAccessKeyId": _BAD_KEY,
    "InvalidToken": _BAD_KEY,
    "ExpiredToken": _BAD_KEY,
    "InvalidSecurity": _BAD_KEY,
    "AuthenticationFailed": _BAD_KEY,
    "InvalidAuthenticationInfo": _BAD_KEY,
    "SignatureDoesNotMatch": _BAD_SECRET,
    "RequestTimeTooSkewed": _CLOCK,
    "AuthorizationHeaderMalformed": _REGION_WRONG,
    "PermanentRedirect": _REGION_WRONG,
    "IllegalLocationConstraintException": _REGION_WRONG,
    "InvalidRegionName": _NO_REGION,
    "NotImplemented": _NOT_OFFERED,
}
_REJECTED_STATUS: Final = {301: _REGION_WRONG, 307: _REGION_WRONG, 308: _REGION_WRONG, 401: _BAD_KEY, 403: _NO_RIGHTS}
_RIGHTS_STATUS: Final = frozenset({401, 403})  # whatever the cloud's code for it
_THROTTLED_CODES: Final = frozenset({"SlowDown", "ServerBusy", "RequestLimitExceeded", "TooManyRequests"})
_THROTTLED_STATUS: Final = frozenset({429, 503})
_EXISTS_CODES: Final = frozenset(
    {"BlobAlreadyExists", "PreconditionFailed", "ConditionNotMet", "TargetConditionNotMet"}
)
_OTHER_RANGES: Final = ("source: NotPartial", "UnexpectedRange", "InvalidRangeRequest", "source: ParseContentRange")

# Texts of the client and its TLS library, in the order in which they are searched.
_UNREACHABLE: Final = (
    ("Connection refused", "connection refused", "start the server, or correct the address"),
    ("dns error", "the host name is unknown", "correct the address"),
    ("NotValidForName", "its certificate is for another name", "use a name that the certificate has"),
    ("Expired", "its certificate has expired", "renew it, or set the clock of this machine"),
    (
        "InvalidCertificate",
        "its certificate is not trusted",
        "name its authority's certificate in SSL_CERT_FILE, or for s3:// in AWS_CA_BUNDLE",
    ),
    ("InvalidContentType", "it does not speak TLS", "use http:// instead of https://, or turn TLS on"),
    ("InvalidMessage", "it does not speak TLS", "use http:// instead of https://, or turn TLS on"),
)


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorResponse:
    """Status and error code of a failed request."""

    status: int | None
    code: str | None
    text: str

    @property
    def is_conflict(self) -> bool:
        """A concurrent write of the same key was in flight: nothing was stored, and its outcome is unknown."""
        return self.status == 409 and self.code not in _EXISTS_CODES

    @property
    def is_past_the_end(self) -> bool:
        return self.status == 416

    @property
    def is_another_range(self) -> bool:
        """The client found that the response has another range than requested."""
        return self.status is None and any(word in self.text for word in _OTHER_RANGES)


def read_error_response(error: Exception) -> ErrorResponse:
    text = str(error)
    status, code = _STATUS.search(text), _CODE.search(text)
    return ErrorResponse(status=int(status[1]) if status else None, code=code[1] if code else None, text=text)


def translate(error: Exception, *, operation: str, key: str, where: str) -> StreamhouseError:
    """Translate an error of the client."""
    response = read_error_response(error)
    if _MACHINE.search(response.text.partition("\n")[0]):
        return _rejection(_NO_CREDENTIALS, response, where)
    if response.code in _REJECTIONS:
        return _rejection(_REJECTIONS[response.code], response, where)
    if isinstance(error, FileNotFoundError) and operation != "put_new":
        return ObjectMissing(key)
    if isinstance(error, AlreadyExistsError | PreconditionError) and not response.is_conflict:
        return ObjectExists(key)
    if response.status in _THROTTLED_STATUS or response.code in _THROTTLED_CODES:
        return Throttled(f"object store asks for fewer requests; operation={operation} {_message(response)}")
    if response.status in _REJECTED_STATUS and (response.code is None or response.status in _RIGHTS_STATUS):
        return _rejection(_REJECTED_STATUS[response.status], response, where)
    if "incorrectly configured region" in response.text:
        return _rejection(_REGION_WRONG, response, where)
    if response.status is not None:
        return Unavailable(f"object store failed; operation={operation} key={key} {_message(response)}")
    return _without_status(response, operation=operation, key=key, where=where)


def _without_status(response: ErrorResponse, *, operation: str, key: str, where: str) -> StreamhouseError:
    """Translate an error without a response: of the connection, or before it."""
    if response.is_another_range:
        return _rejection(_NO_RANGES, response, where)
    first_line = response.text.partition("\n")[0]
    if _CREDENTIALS.search(first_line):
        return _rejection(_NO_CREDENTIALS, response, where)
    kind = _KIND.search(response.text)
    for words, why, do in _UNREACHABLE:
        if words in response.text:
            return Unreachable(why, where=where, do=do)
    if kind and kind[1] == "Connect":
        return Unreachable("no connection", where=where, do="check the address and the network")
    what = kind[1].lower() if kind else "unknown"
    return Unavailable(f"object store gave no whole answer; operation={operation} key={key} kind={what}")


def _rejection(meaning: tuple[str, str], response: ErrorResponse, where: str) -> Refused:
    why, do = meaning
    region = _REGION.search(response.text)
    if meaning is _REGION_WRONG and region:
        do = f"set AWS_REGION={region[1]}"
    said = _message(response)
    return Refused(f"{why} ({said})" if said else why, where=where, do=do)


def _message(response: ErrorResponse) -> str:
    parts = [f"status={response.status}" if response.status else "", f"code={response.code}" if response.code else ""]
    return " ".join(filter(None, parts))
