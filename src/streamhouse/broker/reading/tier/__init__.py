"""The disk tier of the block cache: blocks that memory has no room for, nearer than the object store."""
