"""Lines of a body that comes in pieces."""

from hypothesis import given
from hypothesis import strategies as st

from streamhouse.wire.http.records.upload import LineSplitter


@given(st.binary(max_size=300), st.integers(1, 50))
def test_lines_are_found_however_the_body_is_cut(body: bytes, size: int) -> None:
    body = body.replace(b"\x00", b"\n")
    splitter = LineSplitter()
    lines = [line for at in range(0, len(body), size) for line in splitter.take(body[at : at + size])]
    assert [*lines, splitter.take_rest()] == body.split(b"\n")
    assert splitter.rest_bytes == 0


def test_a_long_line_in_small_pieces_is_looked_at_once() -> None:
    """Looking at all of it again for every piece would take hours."""
    splitter = LineSplitter()
    for _ in range(1_000_000):
        assert splitter.take(b"0123456789abcdef") == []
    [line] = splitter.take(b"\n")
    assert len(line) == 16_000_000
