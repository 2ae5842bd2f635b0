"""A task of one's own, written to a file that the command line reads too: which of two names was given something?"""

import json
from itertools import permutations

import edgewise

NAMES = ["Mary", "John", "Tom", "Anna", "Paul", "Laura"]
TEMPLATE = "When {a} and {b} went to the {place}, {giver} gave a {thing} to"
PLACES = {"train": ("store", "book"), "validation": ("park", "ring"), "test": ("museum", "lamp")}

with open("gifts.jsonl", "w", encoding="utf-8") as file:
    for split, (place, thing) in PLACES.items():
        for a, b in permutations(NAMES, 2):
            about = {"a": a, "b": b, "place": place, "thing": thing}
            # Both prompts have equally many tokens, and answers begin with the space that follows the prompt.
            row = {"clean": TEMPLATE.format(giver=b, **about), "corrupted": TEMPLATE.format(giver=a, **about)}
            file.write(json.dumps(row | {"correct": f" {a}", "incorrect": f" {b}", "split": split}) + "\n")

model = edgewise.load_model("demo")
train, test = (edgewise.load_task("gifts.jsonl", model, split) for split in ("train", "test"))
print(train, test)

found = edgewise.discover(model, train, test)
print(found)
print("the same from the command line: edgewise run --task gifts.jsonl")
