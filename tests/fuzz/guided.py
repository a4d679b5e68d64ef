"""`python -m tests.fuzz.guided --seconds 60`: decoders are given bytes that reach code which no bytes before reached.

Owns        the command line, a process of the fuzzer for each decoder, the corpus
Leaves      what is called, and what it may raise, to `decoders`

The fuzzer is atheris (libFuzzer). Each decoder has a corpus in `tests/fuzz/corpus`, which grows in `.cache/fuzz` and is
small in the repository: `--minimise` copies what is needed to reach the same code. What breaks a decoder is written to
`.cache/fuzz/DECODER/crash-…`; put it into the corpus when it is repaired, so that `test_decoders` tries it each time.
"""

import argparse
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[2]
CORPUS: Final = Path(__file__).parent / "corpus"
FOUND: Final = ROOT / ".cache" / "fuzz"
SLOW_S: Final = 10
RSS_MB: Final = 1500
SMALLEST: Final = 40
"""Files that are kept of a decoder, the shortest first."""


def parse(arguments: Sequence[str]) -> argparse.Namespace:
    from tests.fuzz.decoders import DECODERS

    parser = argparse.ArgumentParser(prog="python -m tests.fuzz.guided", description=__doc__)
    parser.add_argument("--seconds", type=int, default=60, help="for each decoder")
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**31))
    parser.add_argument("--only", choices=sorted(DECODERS), help="this decoder alone")
    parser.add_argument("--minimise", action="store_true", help="copy what reaches new code to the repository's corpus")
    parser.add_argument("--inside", choices=sorted(DECODERS), help=argparse.SUPPRESS)
    return parser.parse_known_args(arguments)[0]


def main(arguments: Sequence[str]) -> int:
    if "--inside" in arguments:
        fuzz(arguments[arguments.index("--inside") + 1], arguments[arguments.index("--libfuzzer") + 1 :])
    options = parse(arguments)
    sys.stdout.write(f"seed {options.seed}\n")
    from tests.fuzz.decoders import DECODERS

    failed = [name for name in ([options.only] if options.only else DECODERS) if not one(name, options)]
    sys.stdout.write(f"failed: {', '.join(failed)}\n" if failed else "nothing was found\n")
    return 1 if failed else 0


def one(name: str, options: argparse.Namespace) -> bool:
    grown, kept = FOUND / name, CORPUS / name
    grown.mkdir(parents=True, exist_ok=True)
    kept.mkdir(parents=True, exist_ok=True)
    from tests.fuzz.decoders import DECODERS

    for number, example in enumerate(DECODERS[name].examples()):
        (grown / f"example-{number}").write_bytes(example)
    limits = (f"-timeout={SLOW_S}", f"-rss_limit_mb={RSS_MB}", f"-artifact_prefix={grown}/", "-print_final_stats=1")
    work = (f"-max_total_time={options.seconds}", f"-seed={options.seed}", "-max_len=4096", str(grown), str(kept))
    done = subprocess.run(command(name, *limits, *work), cwd=ROOT, capture_output=True, text=True, check=False)
    figures = [line for line in done.stderr.splitlines() if line.startswith(("stat::number_of_executed", "stat::new"))]
    sys.stdout.write(f"{name}: {'ok' if not done.returncode else 'FAILED'} {' '.join(figures)}\n")
    if done.returncode:
        sys.stdout.write(done.stderr[-6000:] + "\n")
    elif options.minimise:
        minimise(name, grown, kept)
    return not done.returncode


def minimise(name: str, grown: Path, kept: Path) -> None:
    small = FOUND / f"{name}-small"
    small.mkdir(exist_ok=True)
    for old in small.iterdir():
        old.unlink()
    merge = command(name, "-merge=1", "-max_len=4096", str(small), str(grown), str(kept))
    subprocess.run(merge, cwd=ROOT, capture_output=True, check=False)
    for path in sorted(small.iterdir(), key=lambda each: each.stat().st_size)[:SMALLEST]:
        (kept / path.name[:12]).write_bytes(path.read_bytes())


def command(name: str, *arguments: str) -> list[str]:
    return [sys.executable, "-m", "tests.fuzz.guided", "--inside", name, "--libfuzzer", *arguments]


def fuzz(name: str, arguments: Sequence[str]) -> None:
    """In a process of its own, which the fuzzer ends."""
    import atheris

    with atheris.instrument_imports(include=["streamhouse"]):
        from tests.fuzz.decoders import DECODERS
    decoder = DECODERS[name]
    atheris.Setup(["guided", *arguments], decoder)
    atheris.Fuzz()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
