"""The page of settings is made of the settings."""

from tools.topic_settings import PAGE, page


def test_the_page_is_what_the_settings_say() -> None:
    assert PAGE.read_text(encoding="utf-8") == page(), "stale: run `make docs`"
