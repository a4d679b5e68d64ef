"""Model: the frozen dataclasses that all packages share. No I/O, no clock."""
