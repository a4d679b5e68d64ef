"""Nouns: the frozen dataclasses that all rooms talk in. No I/O, no clock."""
