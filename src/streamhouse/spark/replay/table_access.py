"""Table access: the location of a source, how each library opens it, and errors of access.

Data path   a job's SOURCE -> **table_access** -> file systems of Arrow, options of pyiceberg and delta-rs
Owns        addresses of sources; errors of a bucket, in one line with what to do
Leaves      environment variables with the endpoint and credentials of a bucket to `lake.table_options`
"""

import re
from pathlib import Path
from typing import Any, Final
from urllib.parse import urlsplit

import pyarrow as pa
import pyarrow.fs as pa_fs

from streamhouse.errors import Misconfigured, StreamhouseError, Unavailable
from streamhouse.spark.lake.table_options import delta_options, endpoint_of, file_system, parse_location, within

_CODE: Final = re.compile(r"AWS Error ([A-Z_]+)(?: \(HTTP status (\d+)\))?")
_COLOR: Final = re.compile("\x1b\\[[0-9;]*m")
_DENIED: Final = ("ACCESS_DENIED", "ACCESS_KEY", "SIGNATURE", "TOKEN", "CLIENT", "CREDENTIALS")
_UNREACHED: Final = ("NETWORK_CONNECTION", "SERVICE_UNAVAILABLE", "REQUEST_TIMEOUT", "SLOW_DOWN", "INTERNAL_FAILURE")


def is_bucket(url: str) -> bool:
    """Whether the environment has its credentials; addresses with options have them themselves."""
    parts = urlsplit(url)
    return parts.scheme == "s3" and bool(parts.netloc) and not (parts.query or parts.fragment or "@" in parts.netloc)


def located(url: str) -> tuple[Any, str]:
    """A file system, and the path in it."""
    if is_bucket(url):
        return file_system(url), within(url).rstrip("/")
    absolute = url if "://" in url else str(Path(url).absolute())
    try:
        files, path = pa_fs.FileSystem.from_uri(absolute)
    except (pa.ArrowInvalid, OSError) as error:
        raise Misconfigured(f"not an address of files; source={plain(url)} error={error}") from None
    return files, path.rstrip("/")


def delta_access(url: str) -> dict[str, str] | None:
    """delta-rs's options for a source."""
    return delta_options(parse_location(url)) if is_bucket(url) else None


def check_bucket(url: str) -> None:
    """Raise a clear error for a bucket that doesn't exist, which would look like an empty one."""
    if not is_bucket(url):
        return
    name = urlsplit(url).netloc
    try:
        info = file_system(url).get_file_info(name)
    except OSError as error:
        refused = unreadable(url, error)
        if isinstance(refused, Unavailable):
            raise refused from None
        return  # who may read objects need not be allowed to look at the bucket
    if info.type == pa_fs.FileType.NotFound:
        raise Misconfigured(f"no such bucket; bucket={name}{_at()} do=correct the name, AWS_ENDPOINT_URL or AWS_REGION")


def unreadable(url: str, error: Exception, kind: str = "") -> StreamhouseError:
    """A library's error about a source, in one line."""
    code, status = _code(error)
    if is_bucket(url) and (status == "403" or any(word in code for word in _DENIED)):
        return Misconfigured(
            f"the bucket refuses these credentials; source={url}{_at()} why={code.lower().replace('_', ' ')}"
            " do=AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY with rights to list and read it"
        )
    if is_bucket(url) and code in _UNREACHED:
        return Unavailable(f"the object store doesn't answer; source={url}{_at()} why={code.lower().replace('_', ' ')}")
    why = " ".join(_COLOR.sub("", str(error)).split())[:300]
    return Misconfigured(f"the source can't be read; source={plain(url)}{kind and f' kind={kind}'} why={why}")


def plain(url: str) -> str:
    """Without a name and a password, if the address has them."""
    parts = urlsplit(url)
    return url.replace(f"{parts.netloc.rpartition('@')[0]}@", "") if "@" in parts.netloc else url


def _code(error: Exception) -> tuple[str, str]:
    """Arrow's word for it, and HTTP's; delta-rs has none of its own."""
    if match := _CODE.search(str(error)):
        return match[1], match[2] or ""
    return ("ACCESS_DENIED", "403") if "403 Forbidden" in str(error) else ("", "")


def _at() -> str:
    return f" endpoint={plain(endpoint)}" if (endpoint := endpoint_of()) else ""
