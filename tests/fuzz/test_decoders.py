"""Every decoder reads its examples and refuses everything else in words: the corpus that fuzzing has left, and examples
with some bytes changed."""

import random

import pytest

from tests.fuzz.decoders import DECODERS, MAX_BYTES
from tests.fuzz.guided import CORPUS
from tests.support.depth import base_seed, scaled

ROUNDS = scaled(quick=150, nightly=20_000)


@pytest.mark.parametrize("name", sorted(DECODERS))
def test_what_it_should_read_is_read(name: str) -> None:
    for example in DECODERS[name].examples():
        DECODERS[name].read(example)


@pytest.mark.parametrize("name", sorted(DECODERS))
def test_what_fuzzing_has_found_is_refused_in_words(name: str) -> None:
    for path in sorted((CORPUS / name).iterdir()):
        DECODERS[name](path.read_bytes())


@pytest.mark.parametrize("name", sorted(DECODERS))
def test_changed_bytes_are_read_or_refused_in_words(name: str) -> None:
    chance = random.Random(f"{name}-{base_seed()}")
    examples = DECODERS[name].examples()
    for _ in range(ROUNDS):
        data = changed(chance.choice(examples), chance)
        try:
            DECODERS[name](data)
        except Exception as error:
            error.add_note(f"decoder={name} data={data.hex()}")
            raise


def changed(example: bytes, chance: random.Random) -> bytes:
    data = bytearray(example)
    for _ in range(chance.choice((1, 1, 2, 8))):
        at = chance.randrange(len(data) + 1)
        match chance.randrange(4):
            case 0:
                data[at : at + 1] = bytes([chance.randrange(256)])
            case 1:
                del data[at : at + chance.randrange(1, 9)]
            case 2:
                data[at:at] = data[: chance.randrange(9)]
            case 3:
                data[at : at + 4] = chance.choice((b"\x7f\xff\xff\xff", b"\xff\xff\xff\xff", bytes(4)))
    return bytes(data[:MAX_BYTES])


def test_every_decoder_has_a_corpus_that_is_small() -> None:
    assert {path.name for path in CORPUS.iterdir()} == set(DECODERS)
    assert sum(path.stat().st_size for path in CORPUS.rglob("*") if path.is_file()) < 400_000
