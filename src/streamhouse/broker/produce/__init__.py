"""Produce: validation and append of one batch."""
