"""How another process gets a model: it loads the same files, or is given the module."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..errors import InputError
from ..models import Model, ModelSource, load_source, wrap_model


@dataclass(frozen=True, eq=False)
class ModelCopy:
    """All that another process needs to have the same model.

    content  the hash of what its outputs depend on, by which it is told whether that process has the same
    source   how it is loaded; None for one that was made, or changed, in memory, whose `module` is given instead
    """

    content: str
    name: str
    source: ModelSource | None = None
    module: Any = None
    bos: int | None = None

    def load(self, device: str | None = None) -> Model:
        """The model; on a device if one is said."""
        if self.source is None:
            module = self.module if device is None else self.module.to(device)
            return replace(wrap_model(module, name=self.name, bos="no"), bos=self.bos)
        # A new one: this one brings along what it knew of the files where it comes from.
        source = replace(self.source, device=device or self.source.device)
        if source.content != self.content:
            raise InputError(
                f"a worker has other files of model {self.name!r} than this process; put the same where it runs, or "
                "give a folder that all machines share"
            )
        return load_source(source)


def make_model_copy(model: Model) -> ModelCopy:
    """How another process gets a model."""
    if model.source is not None and model.content == model.source.content:
        return ModelCopy(model.content, model.name, model.source)
    return ModelCopy(model.content, model.name, None, model.module, model.bos)
