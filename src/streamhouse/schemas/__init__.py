"""Schema languages: Avro, JSON Schema and Protobuf behind one set of names (`base`), found through `languages`."""
