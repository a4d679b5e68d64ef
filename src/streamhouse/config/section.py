"""Section: a group of settings, and how one of them is written down.

Owns        the base of every section; what a setting says of itself
Leaves      the settings to `settings` and `pipelines`
"""

from typing import Final

from msgspec import Meta, Struct

MIB: Final = 1024 * 1024


def about(text: str, *, gt: float | None = None, ge: float | None = None, le: float | None = None) -> Meta:
    if ge is not None:
        return Meta(description=text, ge=ge, le=le)
    return Meta(description=text, gt=gt, le=le)


class Section(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A group of settings; its fields carry their own documentation."""
