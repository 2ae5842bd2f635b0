"""Find a circuit in the embedded model, see its strongest edges, and keep everything in results/demo-ioi."""

import edgewise

model = edgewise.load_model("demo")  # or a name on the hub, such as "gpt2", or a folder
train = edgewise.load_task("ioi", model, "train", 100)
test = edgewise.load_task("ioi", model, "test", 100)

found = edgewise.discover(model, train, test)
best = found.best(edgewise.CMD)  # the integrated circuit-model distance: the nearer to 0 the better
print(f"CMD {best.area:.4f} by {best.recipe.name}")

# The smallest of its circuits that does at least 90 % of what the model does, and that circuit's strongest edges.
at = next(place for place, faithful in enumerate(best.curve.faithfulness) if faithful > 0.9)
circuit, score = best.selections[at].circuit, best.rankings[at].value
print(f"{circuit.n_edges} of {model.graph.n_edges} edges are faithful to {best.curve.faithfulness[at]:.2f}:")
worth = {edge: score[model.graph.edge_index(edge)] for edge in circuit.edges}
for edge in sorted(worth, key=lambda edge: -abs(worth[edge]))[:10]:
    print(f"  {edge:18} {worth[edge]:+.2f}")

edgewise.write_result(found, "results/demo-ioi", overwrite=True)
print("results/demo-ioi/README.md says what each file is")
