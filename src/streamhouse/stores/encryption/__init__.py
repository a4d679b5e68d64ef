"""Data keys of encryption at rest, and the key services that wrap them.

Owns        `data_keys` (the keys in use and their limits), one module per key service, `open` (which one)
Leaves      bytes to `format.encryption`, encrypted objects to `stores.objects.encrypted`
"""
