"""Which methods can these examples tell apart? Paired differences from greedy, and edges that two disagree on."""

import edgewise

model = edgewise.load_model("demo")
train, test = (edgewise.load_task("greater-than", model, split, 60) for split in ("train", "test"))
found = edgewise.discover(model, train, test, edgewise.Settings(fill=True))  # fill: circuits of equal size

for measure in (edgewise.CMD, edgewise.CPR):
    print(f"{measure.name}, the {measure.full_name} ({measure.improves})")
    greedy, *others = found.of(measure)
    print(f"  {greedy.recipe.name:27} {greedy.area:.4f}")
    for outcome in others:
        less = edgewise.compare(outcome.curve, greedy.curve, measure)
        difference = f"{less.difference:+.4f} [{less.low:+.4f}, {less.high:+.4f}]"
        print(f"  {outcome.recipe.name:27} {outcome.area:.4f}  {difference}  {less.verdict}")

greedy, ilp = (outcome.selections[5].circuit for outcome in found.of(edgewise.CMD)[:2])
print(f"of 5 % of the edges, greedy and ILP overlap by {edgewise.jaccard(greedy, ilp):.2f}")
print("only ILP has", ", ".join(sorted(set(ilp.edges) - set(greedy.edges))) or "nothing")
