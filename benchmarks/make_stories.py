"""Write task files for a model of children's stories, each with another seed: who receives the thing?

    python benchmarks/make_stories.py stories-0.jsonl stories-1.jsonl stories-2.jsonl
    python benchmarks/learned.py --model MODEL --task stories-*.jsonl --out results/learned-stories

In the corrupted prompt the other friend gives the thing away, so the answer is the other name.
"""

from __future__ import annotations

import json
import random
import sys
from pathlib import Path

NAMES = "Tom Ben Sam Tim Anna Max Jack Mary John Bob Jane Mark Paul Peter Dan Jim".split()
PLACES = ("the park", "the beach", "the farm", "the zoo", "the garden", "the store")
THINGS = ("ball", "book", "cake", "toy", "flower", "apple", "drum", "kite")
TEMPLATES = (
    "Once upon a time, {a} and {b} went to {place}. {giver} had a big {thing}. {giver} gave the {thing} to",
    "One day, {a} and {b} played at {place}. {giver} found a {thing}. {giver} wanted to share, so {giver} gave the "
    "{thing} to",
    "{a} and {b} were best friends. They went to {place}. {giver} had a red {thing}. {giver} smiled and gave the "
    "{thing} to",
    'One sunny day, {a} and {b} were at {place}. Then {giver} said, "Look at my {thing}!" {giver} gave the {thing} to',
)
COUNTS = {"train": 240, "validation": 120, "test": 240}


def write_stories(path: Path, seed: int) -> None:
    """Write distinct prompts for all splits."""
    draw, used, rows = random.Random(seed), set(), []
    for split, count in COUNTS.items():
        while sum(row["split"] == split for row in rows) < count:
            a, b = draw.sample(NAMES, 2)
            words = {"a": a, "b": b, "place": draw.choice(PLACES), "thing": draw.choice(THINGS)}
            template = draw.choice(TEMPLATES)
            if (template, *words.values()) in used:
                continue
            used.add((template, *words.values()))
            giver, other = draw.sample((a, b), 2)
            clean, corrupted = (template.format(giver=name, **words) for name in (giver, other))
            answers = {"correct": other, "incorrect": giver}
            rows.append({"clean": clean, "corrupted": corrupted, **answers, "split": split})
    path.write_text("".join(json.dumps(row) + "\n" for row in rows), encoding="utf-8")


if __name__ == "__main__":
    for seed, name in enumerate(sys.argv[1:]):
        write_stories(Path(name), seed)
