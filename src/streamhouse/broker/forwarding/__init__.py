"""Publishing and reading for HTTP and gRPC clients at any agent, by forwarding to leaders and coordinators."""
