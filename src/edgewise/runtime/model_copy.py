"""ModelCopy: how another process gets the same model."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from ..errors import InputError
from ..models import Model, ModelSource, load_source, wrap_model


@dataclass(frozen=True, eq=False)
class ModelCopy:
    """What another process needs to have the same model.

    content  hash of what the outputs depend on; tells whether the other process has the same files
    source   how to load the model; None if it was made or changed in memory: then `module` is sent
    """

    content: str
    name: str
    source: ModelSource | None = None
    module: Any = None
    bos: int | None = None

    def load(self, device: str | None = None) -> Model:
        """Return the model, on a device if one is given."""
        if self.source is None:
            module = self.module if device is None else self.module.to(device)
            return replace(wrap_model(module, name=self.name, bos="no"), bos=self.bos)
        # A new source, because the one that was sent remembers the content of the sender's files.
        source = replace(self.source, device=device or self.source.device)
        if source.content != self.content:
            raise InputError(
                f"a worker has other files of model {self.name!r} than this process; put the same where it runs, or "
                "give a folder that all machines share"
            )
        return load_source(source)


def make_model_copy(model: Model) -> ModelCopy:
    """Return a copy that can be sent: the source if its files are the model, else the module itself."""
    if model.source is not None and model.content == model.source.content:
        return ModelCopy(model.content, model.name, model.source)
    return ModelCopy(model.content, model.name, None, model.module, model.bos)
