"""Schema languages: Avro, JSON Schema and Protobuf behind one set of names (`base`), looked up in `languages`."""
