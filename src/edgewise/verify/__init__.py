"""Tests of circuits: knock-outs, random circuits, and seven tests of whether a circuit is real."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
