"""`make fuzz FRAMES=1000000`: mutated frames through a whole live agent."""

import argparse
import random
import tempfile
from pathlib import Path

from rich.console import Console
from rich.progress import Progress

from tests.fuzz.hostility import endure


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--frames", type=int, default=1_000_000)
    parser.add_argument("--seed", type=int, default=random.SystemRandom().randrange(2**32))
    arguments = parser.parse_args()
    console = Console()
    console.print(f"seed {arguments.seed}")
    with tempfile.TemporaryDirectory() as folder, Progress(console=console) as bar:
        task = bar.add_task("frames", total=arguments.frames)
        done = endure(
            Path(folder), frames=arguments.frames, seed=arguments.seed, progress=lambda _: bar.advance(task, 50)
        )
    console.print(
        f"{done.frames:,} frames; memory {done.rss_early_mb:.0f} MB after a quarter, {done.rss_late_mb:.0f} at the end"
    )
    if done.errors:
        console.print("\n".join(done.errors[:20]), style="red")
        raise SystemExit(1)


main()
