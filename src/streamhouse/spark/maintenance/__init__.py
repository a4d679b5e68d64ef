"""Spark jobs that merge and compact the segments of a topic."""
