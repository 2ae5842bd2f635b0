"""Where and how work runs: engines, the store of finished work, progress."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
ENGINES = ("local", "ray")
