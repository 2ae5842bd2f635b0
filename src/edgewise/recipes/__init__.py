"""From rankings to curves: recipes, settings, outcomes, tuning, portfolios, stability, forecasts of cost."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
