"""Routes: one module for each resource of the HTTP API; each has `operations(broker)`, which `app` combines."""
