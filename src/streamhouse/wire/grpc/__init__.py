"""The gRPC wire: streamhouse.v1, health and reflection, in grpc.aio on the agent's own event loop.

Importing grpc takes a tenth of a second, so `agent` imports this package only if gRPC is enabled.
"""
