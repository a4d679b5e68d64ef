"""Writes docs/protocol-support.md from the handlers: `make docs`."""

from pathlib import Path
from typing import Final

from streamhouse.wire.kafka import api_registry, handlers

PAGE: Final = Path(__file__).parent.parent / "docs" / "protocol-support.md"


def main() -> None:
    assert handlers.__all__, "importing the handlers is what fills the table"
    PAGE.parent.mkdir(exist_ok=True)
    PAGE.write_text(api_registry.describe(), encoding="utf-8")


if __name__ == "__main__":
    main()
