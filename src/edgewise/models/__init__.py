"""Models: the only package that knows a transformer library.

`load_model` returns a Model, `make_batch` and `prepare` a batch that is ready to run. `prepare.Prepared` is the toolkit
of scorers, learners and evaluation: runs, logits, gradients, differences of sources, and circuits.

One layer, as `forward.run` computes it. A destination reads the stream, a source adds its output to it:

    stream ─┬─ norm ─ q, k, v ─ pattern ─ mix ─ W_O ─┬─ stream ─┬─ norm ─ MLP ─┬─ stream
            └────────────────────────────────────────┴──────────┴──────────────┴──
              destinations: q, k and v  source: every    destination  source: the MLP
              of every head             head's mix x W_O

A `Trace` holds these values of one run. In a circuit, each destination reads its own stream: the stream of a reference
run (the corrupted prompt, or means) plus the changes of the sources that have an edge to it. docs/inside.md says more.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
