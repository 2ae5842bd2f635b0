"""Find a circuit in the embedded model, print its strongest edges, and save everything in results/demo-ioi."""

import edgewise

model = edgewise.load_model("demo")  # or a name on the hub, such as "gpt2", or a folder
train, validation, test = (edgewise.load_task("ioi", model, split, 100) for split in ("train", "validation", "test"))

discovery = edgewise.discover(model, train, test, validation=validation)
best = discovery.best("CMD")  # the integrated circuit-model distance; lower is better
print(f"CMD {best.area:.4f} by {best.recipe.name}, {discovery.choice('CMD')}")

# The smallest circuit with faithfulness within 0.1 of 1, and its strongest edges.
circuit, faithfulness = best.circuit(), best.curve.faithfulness[best.default_size]
print(f"{circuit.n_edges} of {model.graph.n_edges} edges, faithfulness {faithfulness:.2f}:")
value_of = {edge: discovery.mean_scores[model.graph.edge_index(edge)] for edge in circuit.edges}
for edge in sorted(value_of, key=lambda edge: -abs(value_of[edge]))[:10]:
    print(f"  {edge:18} {value_of[edge]:+.2f}")

edgewise.write_result(discovery, "results/demo-ioi", overwrite=True)
print("results/demo-ioi/README.md explains each file")
