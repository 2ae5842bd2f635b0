"""Write a custom scorer in ten lines and compare it with EAP-IG on the same examples."""

from dataclasses import dataclass

import edgewise


@dataclass(frozen=True)
class Halfway(edgewise.Scorer):
    """Multiply the gradient halfway between the two prompts with the difference of their activations."""

    def score(self, batch, metric):
        clean, corrupted = batch.run(batch.clean), batch.run(batch.corrupted)
        middle = batch.run(((batch.clean + batch.corrupted) / 2).requires_grad_())
        readouts = [batch.read_out(run, metric.reads_all_logits) for run in (clean, corrupted, middle)]
        slope = batch.gradients(middle, -metric.checked(readouts[2], readouts[0]).sum())
        values = batch.contract(batch.differences(clean, corrupted), [slope])
        return edgewise.BatchScores(
            values, metric.checked(readouts[0], readouts[0]), metric.checked(readouts[1], readouts[0])
        )


model = edgewise.load_model("demo")
train, test = (edgewise.load_task("ioi", model, split, 60) for split in ("train", "test"))
recipes = {edgewise.CMD: [edgewise.Recipe(edgewise.Ilp())]}
curves = {}
for scorer in (Halfway(), edgewise.EapIg(steps=5), edgewise.Eap()):
    discovery = edgewise.discover(model, train, test, edgewise.Settings(scorer=scorer), recipes)
    curves[scorer.name] = discovery.best("CMD").curve
    print(f"{scorer.name:8} CMD {curves[scorer.name].cmd:.4f}")

comparison = edgewise.compare(curves["Halfway"], curves["eap-ig"], edgewise.CMD)
interval = f"[{comparison.low:+.4f}, {comparison.high:+.4f}]"
print(f"Halfway minus eap-ig: {comparison.difference:+.4f} {interval}, {comparison.verdict}")
