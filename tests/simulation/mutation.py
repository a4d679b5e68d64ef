"""Mutation: one guard of the product taken out, and where its absence shows soonest."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

Patch = pytest.MonkeyPatch


@dataclass(frozen=True, slots=True, kw_only=True)
class Mutation:
    apply: Callable[[Patch], None]
    profile: str
    tweaks: Mapping[str, Any] = field(default_factory=dict)
    """Options that show the absence sooner."""
    seeds: int = 60
    first: int = 0
    """Where to begin to look, for what shows rarely."""

    @property
    def range(self) -> range:
        return range(self.first, self.first + self.seeds)
