"""Joining: in C as in Python."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from streamhouse.format import buffers
from streamhouse.format.batch import Buffer
from streamhouse.format.buffers import join

pytestmark = pytest.mark.skipif(not buffers.IS_COMPILED, reason="built without a compiler")

LARGE = 100_000
"""Enough for a copy without the GIL."""
BUFFERS = st.one_of(
    st.binary(max_size=40),
    st.binary(max_size=40).map(bytearray),
    st.binary(min_size=1, max_size=40).map(lambda data: memoryview(data)[1:]),
    st.binary(min_size=1, max_size=4).map(lambda data: data * LARGE),
)


@given(st.lists(BUFFERS, max_size=8))
def test_buffers_are_joined_as_python_joins_them(pieces: list[Buffer]) -> None:
    assert join(pieces) == join(iter(pieces)) == b"".join(pieces)


@pytest.mark.parametrize("last", [3, "text", None, memoryview(b"abcd")[::2]])
def test_what_is_no_buffer_is_refused_and_nothing_stays_locked(last: object) -> None:
    first = bytearray(b"first")
    with pytest.raises((TypeError, BufferError)):
        join([first, last])  # type: ignore[list-item]
    first += b" grows"
    with pytest.raises(TypeError):
        join(3)  # type: ignore[arg-type]
