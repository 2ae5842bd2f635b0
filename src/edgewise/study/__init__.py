"""The paper's experiments: a plan, its cells over seeds, the tables, the folder."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
