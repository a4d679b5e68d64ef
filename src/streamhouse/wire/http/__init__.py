"""The HTTP wire: health, metrics and the JSON API, in Starlette on the agent's own event loop."""
