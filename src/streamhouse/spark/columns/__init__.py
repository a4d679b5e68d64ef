"""Typed: records as columns of their own fields, by the schemas that the registry has for them.

Data path   value of a record -> schema id -> `schemas` -> **typed** -> Arrow -> Spark
Owns        which column a field becomes, in each language of schemas, and what a record without the field has there
Leaves      the languages to `schemas`, the registry to `client.schemas`
"""

from streamhouse.spark.columns.typed_columns import TypedShape, check_typed, own_types, typed_schema
from streamhouse.spark.columns.typed_decoder import ReaderSchema, find_schema, latest_schema

__all__ = ["ReaderSchema", "TypedShape", "check_typed", "find_schema", "latest_schema", "own_types", "typed_schema"]
