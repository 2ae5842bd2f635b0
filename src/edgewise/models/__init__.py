"""Models: the only package that knows a transformer library.

`load_model` returns a Model, `make_batch` and `prepare` a batch that is ready to run. `prepare.Prepared` is the toolkit
of scorers, learners and evaluation: runs, logits, gradients, differences of sources, and circuits.

docs/inside.md shows a layer, and what a `Trace` holds of a run.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
