"""Expected gradients: EAP with the gradient at one random point between the corrupted and the clean embedding."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from ..models.memory import Need, Shape, scoring_need
from ..tasks.metrics import Metric
from .base import BatchScores, Scorer
from .first_order import run_with_gradients

if TYPE_CHECKING:
    from ..models.batch import Batch
    from ..models.prepare import Prepared


@dataclass(frozen=True)
class ExpectedGradients(Scorer):
    """Source differences times the gradient at corrupted + a (clean - corrupted), with one random a per example.

    a is uniform in [0, 1), and a digest of `seed` and of the example's tokens, so that it depends neither on the batch
    nor on the order of the examples. The mean over examples estimates the integral that EAP-IG approximates by steps.
    """

    name: ClassVar[str] = "expected-gradients"
    seed: int = 0

    def need(self, shape: Shape, length: int) -> Need:
        """Return the memory of one run with gradients, beside the differences."""
        return scoring_need(shape, length, kept_traces=0)

    def score(self, batch: Prepared, metric: Metric) -> BatchScores:
        import torch

        corrupted, clean = batch.run(batch.corrupted), batch.run(batch.clean)
        corrupted_readout, readout = (batch.read_out(run, metric.reads_all_logits) for run in (corrupted, clean))
        differences = batch.differences(clean, corrupted)
        del clean, corrupted  # the runs are large, and the gradients do not need them
        points = torch.tensor(self.draw_points(batch.batch), dtype=batch.clean.dtype, device=batch.clean.device)
        embedding = batch.corrupted.lerp(batch.clean, points[:, None, None])
        values = batch.contract(differences, [run_with_gradients(batch, metric, embedding, readout)[-1]])
        return BatchScores(values, metric.checked(readout, readout), metric.checked(corrupted_readout, readout))

    def draw_points(self, batch: Batch) -> list[float]:
        """Return a number in [0, 1) per example."""
        points = []
        for clean, corrupted, real in zip(batch.clean, batch.corrupted, batch.real, strict=True):
            text = repr((self.seed, clean[real].tolist(), corrupted[real].tolist()))
            digest = hashlib.sha256(text.encode()).digest()
            points.append(int.from_bytes(digest[:6], "big") / 2**48)
        return points
