"""Fetch, ListOffsets, and the read plans of readers that go to the object store themselves."""
