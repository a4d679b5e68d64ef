"""Protocols: bytes from the network in, promises of the broker out. No wire knows another one."""
