"""Models: the only package that knows a transformer library.

It computes outputs of the sources (`run`, `source_differences`), gradients at the destinations
(`destination_gradients`, `contract`) and logits of circuits (`run_circuits`, `run_weighted`, `read_out`).
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
