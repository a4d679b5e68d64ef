"""Turns: how many requests of one client are begun before others have their turn.

Data path   beside connection
Owns        the number; without it a client that sends thousands of small requests at once stops all others
Leaves      giving way, also within one request, to `broker.turns`; the order of a client's requests to `connection`
"""

from typing import Final

REQUESTS_A_TURN: Final = 8
"""So many requests of one connection are begun in a row; most take less than 0.1 ms."""
