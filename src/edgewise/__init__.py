"""edgewise: find circuits in language models. `discover` is the whole flow; every stage is a function of its own.

Scorers (`EapIg`), filters (`Bootstrap`), solvers (`Ilp`), metrics and ablations are small frozen objects that functions
take, custom ones included. Further names are in the subpackages, such as `edgewise.evaluate.SIZES`.

The public names are listed in `__init__.pyi`. Each is imported when it is first used, so that `import edgewise` doesn't
wait for torch.
"""

import lazy_loader

from .version import __version__

__getattr__, __dir__, __all__ = lazy_loader.attach_stub(__name__, __file__)
