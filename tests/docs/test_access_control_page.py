"""docs/access-control.md says what the operations declare."""

from tools.access_table import PAGE, describe


def test_the_page_is_what_the_operations_declare() -> None:
    assert PAGE.read_text(encoding="utf-8") == describe(), "stale: run `make docs`"
