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
    breaks: tuple[str, ...]
    """The rules that are violated without the guard, by their names: what a violation says up to its first semicolon.
    A seed that fails otherwise, by an exception for one, has not noticed."""
    tweaks: Mapping[str, Any] = field(default_factory=dict)
    """Options that show the absence sooner."""
    seeds: int = 150
    is_rare: bool = False
    """Whether it shows in so few seeds that only nightly depth looks for it."""
    first: int = 0
    """Where to begin to look, for what shows rarely."""

    @property
    def range(self) -> range:
        return range(self.first, self.first + self.seeds)
