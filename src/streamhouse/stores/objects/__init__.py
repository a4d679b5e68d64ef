"""Object stores: the interface, one module per kind of bucket, and wrappers that each add one function."""
