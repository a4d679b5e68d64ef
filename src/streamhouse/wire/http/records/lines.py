"""Lines: a body that comes in pieces is cut at its line ends.

Data path   bodies -> **lines** -> upload
Owns        the line that is not whole yet; every byte is looked at once, however small the pieces are
Leaves      how long a line may be to `upload`
"""


class LineSplitter:
    def __init__(self) -> None:
        self._rest = bytearray()

    def __repr__(self) -> str:
        return f"<LineSplitter rest={len(self._rest)}>"

    @property
    def rest_bytes(self) -> int:
        """How much there is of the line that is not whole yet."""
        return len(self._rest)

    def take(self, piece: bytes) -> list[bytes]:
        """The lines that the piece ends, without their ends."""
        first, *others = piece.split(b"\n")
        self._rest += first
        if not others:
            return []
        lines = [bytes(self._rest), *others[:-1]]
        self._rest = bytearray(others[-1])
        return lines

    def take_rest(self) -> bytes:
        """The last line, which needs no end."""
        rest, self._rest = bytes(self._rest), bytearray()
        return rest
