"""The HTTP wire is tested on the broker's worlds."""

from tests.broker.conftest import make_world, world

__all__ = ["make_world", "world"]
