"""The committed message classes are what the generator writes from Kafka's definitions."""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

import pytest

from tools.generate_messages import KAFKA_VERSION, TARGET, Definition, find_source, generate, read_definitions


def _kafka_python_folder() -> Path:
    spec = find_spec("kafka")
    assert spec is not None
    assert spec.origin is not None
    return Path(spec.origin).parent / "protocol/schemas/resources"


COPY: Final = read_definitions(_kafka_python_folder())
COMMITTED: Final = {path.name: path.read_text() for path in TARGET.glob("*.py")}


def test_the_committed_modules_are_up_to_date() -> None:
    source = find_source()
    if source is None:
        pytest.skip(f"kafka-clients {KAFKA_VERSION} is not on this machine")
    assert generate(read_definitions(source)) == COMMITTED


def complete(definitions: dict[str, Definition]) -> dict[str, Definition]:
    """kafka-python leaves out which listener serves an API; every one that it has is a client's."""
    return {name: {"listeners": ["broker"], **definition} for name, definition in definitions.items()}


def test_most_modules_also_follow_from_the_copy_in_kafka_python() -> None:
    """The copy is of another release, so a few APIs have moved on since; a changed generator would show in all."""
    generated = generate(complete(COPY))
    assert len(generated) > 50
    assert len([name for name, content in generated.items() if COMMITTED[name] != content]) < 12


def test_no_sentence_of_the_definitions_is_in_the_modules() -> None:
    everything = "\n".join(COMMITTED.values())

    def abouts(value: object) -> list[str]:
        if isinstance(value, list):
            return [about for each in value for about in abouts(each)]
        if isinstance(value, dict):
            own = [value["about"]] if "about" in value else []
            return own + [about for each in value.values() for about in abouts(each)]
        return []

    prose = [about for definition in COPY.values() for about in abouts(definition)]
    assert len(prose) > 500
    assert [about for about in prose if about in everything] == []
