"""Objects: a narrow door to a bucket, one module per kind of bucket, wrappers that each add one thing."""
