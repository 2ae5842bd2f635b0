"""Find a circuit in the embedded model, print its strongest edges, and save everything in results/demo-ioi."""

import edgewise

model = edgewise.load_model("demo")  # or a name on the hub, such as "gpt2", or a folder
train = edgewise.load_task("ioi", model, "train", 100)
test = edgewise.load_task("ioi", model, "test", 100)

discovery = edgewise.discover(model, train, test)
best = discovery.best(edgewise.CMD)  # the integrated circuit-model distance; lower is better
print(f"CMD {best.area:.4f} by {best.recipe.name}")

# The smallest circuit with a faithfulness above 0.9, and its strongest edges.
index = next(i for i, faithfulness in enumerate(best.curve.faithfulness) if faithfulness > 0.9)
circuit, values = best.selections[index].circuit, best.rankings[index].value
print(f"{circuit.n_edges} of {model.graph.n_edges} edges, faithfulness {best.curve.faithfulness[index]:.2f}:")
value_of = {edge: values[model.graph.edge_index(edge)] for edge in circuit.edges}
for edge in sorted(value_of, key=lambda edge: -abs(value_of[edge]))[:10]:
    print(f"  {edge:18} {value_of[edge]:+.2f}")

edgewise.write_result(discovery, "results/demo-ioi", overwrite=True)
print("results/demo-ioi/README.md explains each file")
