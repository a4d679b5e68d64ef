"""Routes: one module for each noun of the HTTP API; each has `routes(broker)`, which `app` puts together."""
