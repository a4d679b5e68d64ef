"""Settings of retention, compaction and checks of objects."""

from typing import Annotated

from streamhouse.config.fields import MIB, Section, about


class RetentionSettings(Section, frozen=True, kw_only=True):
    check_s: Annotated[float, about("interval of applying retention", gt=0)] = 60.0
    grace_s: Annotated[
        float, about("time between the removal of the last reference to an object and its deletion", ge=0)
    ] = 900.0
    orphan_age_s: Annotated[
        float, about("age from which an object that the metadata store does not reference is deleted", ge=0)
    ] = 86_400.0
    sweep_s: Annotated[float, about("interval of searching for unreferenced objects", gt=0)] = 3600.0


class CompactionSettings(Section, frozen=True, kw_only=True):
    interval_s: Annotated[float, about("interval of checking what to compact or merge", gt=0)] = 15.0
    max_keys: Annotated[
        int, about("keys that one pass over a partition holds in memory, 140 bytes each; the next pass continues", gt=0)
    ] = 500_000
    segment_bytes: Annotated[int, about("decompressed size of the records rewritten together", gt=0)] = 64 * MIB
    max_runs: Annotated[int, about("maximum runs rewritten together", gt=0)] = 1000
    read_bytes: Annotated[int, about("size of one ranged read of the runs to rewrite", gt=0)] = 8 * MIB
    merge_runs: Annotated[int, about("adjacent small runs of a partition that are merged into one; 0: never", ge=0)] = (
        16
    )
    merge_below_bytes: Annotated[int, about("size below which a run counts as small", gt=0)] = 16 * MIB
    damage_retry_s: Annotated[
        float, about("wait before compaction retries a partition with unreadable records", gt=0)
    ] = 600.0
    merges_at_once: Annotated[int, about("merges per check; further ones wait for the next check", ge=0)] = 4


class IntegritySettings(Section, frozen=True, kw_only=True):
    check_s: Annotated[float, about("interval of checking that referenced objects exist and have their size", gt=0)] = (
        60.0
    )
    objects: Annotated[
        int, about("objects per check, one HEAD request each; all objects are checked in turn; 0: no checks", ge=0)
    ] = 100
    requests_at_once: Annotated[int, about("concurrent requests of a check", gt=0)] = 8
    remembered: Annotated[int, about("missing or truncated objects that an agent remembers and reports", gt=0)] = 1000
    doctor_objects: Annotated[
        int, about("objects that `streamhouse doctor` checks: the newest, and a random sample", gt=0)
    ] = 1000
    doctor_requests_at_once: Annotated[int, about("concurrent requests of `streamhouse doctor`", gt=0)] = 32
