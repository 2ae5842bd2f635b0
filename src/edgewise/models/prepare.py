"""Prepare a batch for runs: compute its frame and embeddings, and run the shared prefix of its prompts once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from torch import Tensor

from ..tasks.metrics import Readout
from .batch import Batch
from .circuits import reference_from_sources
from .forward import Frame, Trace, keys_and_values, make_frame, read_out, run
from .transformer import Transformer


@dataclass(frozen=True, eq=False)
class Prepared:
    """What every run of a batch needs.

    clean, corrupted  [example, position, d_model] outputs of the node `input`
    last              [example] the position that the metric reads, counted from the first position that runs
    answers, right    as in `Batch`
    """

    model: Transformer
    frame: Frame
    clean: Tensor
    corrupted: Tensor
    last: Tensor
    answers: Tensor
    right: Tensor

    def run(self, embedding: Tensor) -> Trace:
        """Run the model from an output of the node `input`."""
        return run(self.model, embedding, self.frame)

    def run_from_sources(self, embedding: Tensor, mix: Sequence[Tensor], mlp_out: Sequence[Tensor]) -> Trace:
        """Return the trace of a run in which every source has a fixed output, whatever it reads.

        mix      per layer, [example, position, head, d_head] each head's output before the output projection
        mlp_out  per layer, [example, position, d_model]
        """
        sources = Trace(embedding, (), (), (), (), tuple(mix), (), tuple(mlp_out), embedding)
        return reference_from_sources(self.model, sources, self.frame)

    def read_out(self, trace: Trace, all_logits: bool) -> Readout:
        """Return the logits of a run at each example's last position."""
        rows = torch.arange(len(self.last), device=self.last.device)
        return self.read_stream(trace.final[rows, self.last], all_logits)

    def read_stream(self, stream: Tensor, all_logits: bool) -> Readout:
        """Return the logits for the final stream [example, d_model] at each example's last position."""
        return read_out(self.model, stream, self.answers, self.right, all_logits)


def prepare(model: Transformer, batch: Batch, share_prefix: bool = True) -> Prepared:
    """Prepare a batch for runs.

    Attention is causal, so all runs (clean, corrupted, interpolated, patched) have the same activations before the
    first token in which the prompts differ. With `share_prefix` these positions run once, and later positions read
    their keys and values.
    """
    first = batch.shared if share_prefix else 0
    with torch.no_grad():
        past = None
        if first:
            prefix = make_frame(model, batch.real[:, :first])
            past = keys_and_values(model, run(model, model.embed(batch.clean[:, :first]), prefix), prefix)
        frame = make_frame(model, batch.real, first, past)
        clean, corrupted = (model.embed(tokens[:, first:]) for tokens in (batch.clean, batch.corrupted))
    return Prepared(model, frame, clean, corrupted, batch.last - first, batch.answers, batch.right)
