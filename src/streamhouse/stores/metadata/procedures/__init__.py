"""Procedures: the metadata store's calls, each as one transaction; written once for all SQL engines."""
