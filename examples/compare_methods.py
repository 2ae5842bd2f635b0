"""Which recipes differ significantly from greedy? Print paired differences, and the edges in only one circuit."""

import edgewise

model = edgewise.load_model("demo")
train, test = (edgewise.load_task("greater-than", model, split, 60) for split in ("train", "test"))
discovery = edgewise.discover(
    model, train, test, edgewise.Settings(fill=True)
)  # fill: all circuits have the requested size

for measure in (edgewise.CMD, edgewise.CPR):
    print(f"{measure.name}, the {measure.full_name} ({measure.improves})")
    greedy, *others = discovery.of(measure)
    print(f"  {greedy.recipe.name:27} {greedy.area:.4f}")
    for outcome in others:
        comparison = edgewise.compare(outcome.curve, greedy.curve, measure)
        difference = f"{comparison.difference:+.4f} [{comparison.low:+.4f}, {comparison.high:+.4f}]"
        print(f"  {outcome.recipe.name:27} {outcome.area:.4f}  {difference}  {comparison.verdict}")

greedy, ilp = (outcome.circuit(0.05) for outcome in discovery.of("CMD")[:2])
print(f"at 5 % of the edges, the Jaccard overlap of greedy and ILP is {edgewise.jaccard(greedy, ilp):.2f}")
print("edges in the ILP circuit only:", ", ".join(sorted(set(ilp.edges) - set(greedy.edges))) or "none")
