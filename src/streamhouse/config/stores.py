"""Settings of the metadata store and the object store."""

from typing import Annotated, Literal

from streamhouse.config.fields import MIB, Section, about


class MetadataSettings(Section, frozen=True, kw_only=True):
    url: Annotated[str, about("metadata store: sqlite:///… or postgresql://…; empty: SQLite in the data folder")] = ""
    timeout_s: Annotated[float, about("deadline of one metadata call", gt=0)] = 5.0
    connect_timeout_s: Annotated[
        float, about("timeout of connecting to a PostgreSQL host; then the next host is tried", gt=0)
    ] = 2.0
    start_wait_s: Annotated[
        float, about("how long a starting agent retries while the metadata store does not respond", ge=0)
    ] = 30.0
    min_connections: Annotated[int, about("PostgreSQL connections kept open while idle", ge=0)] = 1
    max_connections: Annotated[int, about("maximum PostgreSQL connections of an agent", gt=0)] = 8
    failures_until_not_ready: Annotated[
        int, about("consecutive failed metadata calls after which the agent reports not ready", gt=0)
    ] = 3


class StoreSettings(Section, frozen=True, kw_only=True):
    url: Annotated[
        str,
        about(
            "object store of the records: file:///path, s3://, gs:// or az://bucket/prefix; empty: in the data folder"
        ),
    ] = ""
    sse: Annotated[
        Literal["", "AES256", "aws:kms", "aws:kms:dsse"],
        about("server-side encryption requested from S3 (SSE-S3, SSE-KMS); empty: as in the environment or the bucket"),
    ] = ""
    sse_kms_key_id: Annotated[str, about("key of AWS KMS for sse=aws:kms; empty: the account's own")] = ""
    sse_bucket_key: Annotated[bool, about("use S3 bucket keys, which save requests to KMS")] = False
    request_timeout_s: Annotated[
        float, about("timeout of one request, plus the transfer time allowed by min_bytes_per_s", gt=0)
    ] = 15.0
    connect_timeout_s: Annotated[float, about("timeout of connecting to a bucket", gt=0)] = 5.0
    idle_timeout_s: Annotated[float, about("idle time after which a connection to a bucket is closed", gt=0)] = 20.0
    min_bytes_per_s: Annotated[
        int, about("slowest accepted transfer; extends the timeout of a request by its size divided by this", gt=0)
    ] = MIB
    max_retries: Annotated[int, about("retries of a failed request before the error is returned", ge=0)] = 4
    retry_total_s: Annotated[float, about("time after which no further retry begins", gt=0)] = 20.0
    retry_wait_s: Annotated[float, about("wait before the first retry; doubles, with jitter", gt=0)] = 0.1
    retry_wait_max_s: Annotated[float, about("longest wait between two retries", gt=0)] = 3.0
    max_concurrent: Annotated[
        int,
        about(
            "concurrent requests to a bucket, for each of: reads, WAL writes, other writes, deletes and "
            "listings; fewer while it is slow",
            gt=0,
        ),
    ] = 64
    max_waiting: Annotated[int, about("calls that may wait for one of max_concurrent; further calls fail", gt=0)] = 1024
    max_wait_s: Annotated[float, about("longest wait of such a call", gt=0)] = 30.0
    pause_s: Annotated[
        float, about("pause after a bucket's slow-down response; doubles up to pause_max_s, with jitter", gt=0)
    ] = 0.1
    pause_max_s: Annotated[float, about("longest pause after slow-down responses of a bucket", gt=0)] = 5.0
