"""Connectors: tables as data frames, and data frames into tables; one module for each kind of place.

Data path   sql.binding, pipelines -> **connectors** -> topics, files, PostgreSQL, views
Owns        what a connector is (`base`), which there are (`find`)
Leaves      names and columns to `sql.catalogue`, when to read and write to whoever asks
"""
