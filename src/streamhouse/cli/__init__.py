"""The command line: arguments in, text out.

Data path   a person or a script -> **cli** -> `agent` (to run one) or `client` (to talk to one)
Owns        the commands, their help, what tables and JSON look like, exit codes (1: it failed, 2: wrong usage)
Leaves      everything else to `agent`, `client` and `format`

Libraries that take long to import (aiokafka, httpx, the agent, rich's tables) are imported where they are used, so that
help and completion answer at once.
"""
