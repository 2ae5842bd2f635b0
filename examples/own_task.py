"""Write a custom task to a file, for Python and the command line: which of two people receives something?"""

import json
from itertools import permutations

import edgewise

NAMES = ["Mary", "John", "Tom", "Anna", "Paul", "Laura"]
TEMPLATE = "When {a} and {b} went to the {place}, {giver} gave a {thing} to"
PLACES = {"train": ("store", "book"), "validation": ("park", "ring"), "test": ("museum", "lamp")}

with open("gifts.jsonl", "w", encoding="utf-8") as file:
    for split, (place, thing) in PLACES.items():
        for a, b in permutations(NAMES, 2):
            words = {"a": a, "b": b, "place": place, "thing": thing}
            # Both prompts have the same number of tokens. An answer starts with the space that follows the prompt.
            row = {"clean": TEMPLATE.format(giver=b, **words), "corrupted": TEMPLATE.format(giver=a, **words)}
            file.write(json.dumps(row | {"correct": f" {a}", "incorrect": f" {b}", "split": split}) + "\n")

model = edgewise.load_model("demo")
train, validation, test = (edgewise.load_task("gifts.jsonl", model, split) for split in PLACES)
print(train, test)

discovery = edgewise.discover(model, train, test, validation=validation)
print(discovery)
print("on the command line: edgewise run --task gifts.jsonl")
