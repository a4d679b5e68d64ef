"""The write-ahead log: where an append becomes durable before its ack.

`base` is the door; `disk` keeps the log in local files, which it reaches through the narrower door `files`;
`recovery` reads what a dead session left behind.
"""
