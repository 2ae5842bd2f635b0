"""The inputs of each reader: valid files, changed by generic mutations, and a few handcrafted attacks."""

from __future__ import annotations

import csv
import io
import json
import struct
from collections.abc import Callable, Mapping
from dataclasses import replace
from typing import Any

from hypothesis import strategies as st

from edgewise.graph import BaseGraph

from . import valid
from .inputs import ACCEPT, REFUSE, Folder, Input, Link, Pipe, Sparse
from .mutate import CODE, INTEGERS, TEXTS, Draw, hostile_pickle, mutate

GIANT = 3 * 10**9
GIANTS = tuple(Sparse(GIANT, head) for head in (b"", b"{", b"\x93NUMPY\x01\x00", b"PK\x03\x04"))
ENTRIES = (
    None, b"", Folder(), Pipe(), *GIANTS,
    *(Link(target) for target in ("itself", ".", "..", "nowhere", "/dev/zero", "/dev/null", "/dev/stdin")),
)  # fmt: skip
# Readers limit the size of these; other files are memory-mapped.
LIMITED = (".json", ".jsonl", ".csv", ".pt", ".npz")


@st.composite
def attack(draw: Draw, files: Mapping[str, bytes], reads: tuple[str, ...] = ("",)) -> Input:
    """Change a file of a valid input, or replace it by something that is no file."""
    given = Input(files, verdict=ACCEPT, read=draw(st.sampled_from(reads)))
    name = draw(st.sampled_from(sorted(files)))
    kind = draw(st.integers(0, 29))
    if kind == 0:
        return given
    if kind < 3:
        return _replace_entry(draw, given, name)
    new, words = mutate(draw, name, files[name])
    if kind == 3 and name.endswith(".json"):  # twice
        try:
            new, more = mutate(draw, name, new)
            words = f"{words}, then {more}"
        except (ValueError, RecursionError):
            pass
    return given.with_file(name, new, words)


def _replace_entry(draw: Draw, given: Input, name: str) -> Input:
    entry = draw(st.sampled_from([one for one in ENTRIES if name.endswith(LIMITED) or one not in GIANTS]))
    if isinstance(entry, Link) and entry.target == "itself":
        entry = Link(name.rpartition("/")[2])
    return given.with_file(name, entry, f"entry {entry!r:.60}")


def or_crafted(attacks: st.SearchStrategy[Input], crafted: st.SearchStrategy[Input]) -> st.SearchStrategy[Input]:
    """Draw one handcrafted input for every seven generic ones."""
    return st.integers(0, 7).flatmap(lambda number: attacks if number else crafted)


# --- circuits and scores

READS = ("circuit", "scores")


def circuit(suffix: str, graph: BaseGraph = valid.GRAPH) -> st.SearchStrategy[Input]:
    """A circuit or scores in one file."""
    name = f"circuit.{suffix}"
    generic = attack({name: valid.circuit(graph)[name]}, ("circuit",) if suffix == "npz" else READS)
    crafted = {"json": lambda: large_graph(graph.level), "pt": lambda: tensors(graph), "npz": lambda: generic}
    return or_crafted(generic, crafted[suffix]())


@st.composite
def large_graph(draw: Draw, level: str) -> Input:
    """A small json that names a large graph; of nodes and neurons, with a score for `input`."""
    shapes = ((20000, 1), (1, 20000), (10**9, 1), (300, 64), (2, 10**6), (10**30, 10**30))
    layers, heads = draw(st.sampled_from(shapes))
    cfg = {"n_layers": layers, "n_heads": heads, "d_model": 8, "parallel_attn_mlp": False}
    scored = {"node": {"score": 1.0}, "neuron": {"neurons": [True] * 8, "neurons_scores": [1.0] * 8}}
    nodes = {"input": {"in_graph": True} | scored[level]} if level in scored else {}
    text = json.dumps({"cfg": cfg, "nodes": nodes, "edges": {}}).encode()
    return Input({"circuit.json": text}, f"{cfg} without edges", read=draw(st.sampled_from(READS)))


@st.composite
def tensors(draw: Draw, graph: BaseGraph) -> Input:
    """A pt with a tensor of another kind."""
    import torch

    data = torch.load(io.BytesIO(valid.circuit(graph)["circuit.pt"]), weights_only=True)
    key = draw(st.sampled_from(sorted(key for key, value in data.items() if isinstance(value, torch.Tensor))))
    tensor = data[key]
    kinds: dict[str, Callable[[], Any]] = {
        "wide": lambda: torch.zeros(1, dtype=tensor.dtype).expand(*(n * 10**4 for n in tensor.shape)),
        "longer": lambda: torch.cat([tensor, tensor[:1]]),
        "complex": lambda: tensor.to(torch.complex64),
        "sparse": lambda: tensor.to_sparse(),
        "meta": lambda: torch.empty(tensor.shape, dtype=tensor.dtype, device="meta"),
        "array": lambda: tensor.numpy(),
        "quantised": lambda: torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8),
        "module": lambda: torch.nn.Linear(2, 2),
        "list": lambda: tensor.tolist(),
        "half": lambda: tensor.to(torch.float16),
        "float8": lambda: tensor.float().to(torch.float8_e4m3fn),
        "integer": lambda: tensor.to(torch.int64),
        "nan": lambda: torch.full(tensor.shape, torch.nan),
        "stretched": lambda: torch.zeros((1,) * tensor.ndim, dtype=tensor.dtype).expand(tensor.shape),
    }
    kind = draw(st.sampled_from((*kinds, "pickle", "legacy")))
    file = io.BytesIO()
    if kind == "pickle":
        file.write(hostile_pickle(draw))
    else:
        data[key] = tensor if kind == "legacy" else kinds[kind]()
        torch.save(data, file, _use_new_zipfile_serialization=kind != "legacy")
    refused = ("half", "float8", "integer", "nan", "stretched")
    verdict = None if kind in refused else REFUSE
    return Input({"circuit.pt": file.getvalue()}, f"{key} {kind}", verdict, draw(st.sampled_from(READS)))


# --- units and studies


@st.composite
def unit(draw: Draw) -> Input:
    """A store with a unit."""
    return draw(attack(valid.unit()))


@st.composite
def study(draw: Draw) -> Input:
    """A study folder."""
    return draw(attack(valid.study()))


# --- submissions

NAMES = (
    "ioi_gpt2", "mcqa_gemma2", "abs-True", "abs-False", "IOI_GPT2", "ioi_", "_", "\x1b[31m_gpt2", "ioi_gpt2\n", "..x",
    "[bold]_gpt2", ".hidden", "a" * 200, "\udcff_gpt2", "abs-true/abs-false", "abs-True/" * 150 + "x", "ioi_gpt2 ",
)  # fmt: skip


@st.composite
def odd_trees(draw: Draw) -> Input:
    """A submission with another file or folder."""
    given, name = Input(valid.submission()), draw(st.sampled_from(NAMES))
    inner = draw(st.sampled_from(("", "/x.json", "/ioi_gpt2", "/ioi_gpt2/x.json", "/abs-True")))
    links = (".", "..", name.rpartition("/")[2], "nowhere", "/dev/zero", "/proc/self", "../ioi_gpt2")
    entry = draw(st.sampled_from((Folder(), b"{}", Pipe(), Sparse(GIANT, b"{"), *map(Link, links))))
    if name in ("ioi_gpt2", "mcqa_gemma2") and not inner:
        given = replace(given, files={path: data for path, data in given.files.items() if not path.startswith(name)})
    return given.with_file(f"{name}{inner}", entry, f"{entry!r:.60}")


def submission() -> st.SearchStrategy[Input]:
    """The folder of a submission."""
    return st.one_of(attack(valid.submission()), odd_trees())


# --- tasks


def lines_of(rows: Any) -> bytes:
    """Return rows as a file with one JSON object per line."""
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


def table_of(rows: Any) -> bytes:
    """Return rows as a CSV file."""
    file = io.StringIO(newline="")
    cells = [[one if isinstance(one, str) else json.dumps(one) for one in row.values()] for row in rows]
    csv.writer(file).writerows([list(rows[0]), *cells])
    return file.getvalue().encode()


def tasks() -> st.SearchStrategy[Input]:
    """A task file of text or tokens."""
    rows = (valid.text_rows(), valid.token_rows())
    files = [{"task.jsonl": lines_of(one)} for one in rows] + [{"task.csv": table_of(one)} for one in rows]
    return st.sampled_from(files).flatmap(lambda file: attack(file, tuple(file)))


@st.composite
def mib(draw: Draw) -> Input:
    """A local copy of the benchmark's data set: a file or a folder."""
    given = draw(attack({"train.jsonl": lines_of(valid.mib_rows())}, ("file", "folder")))
    if draw(st.integers(0, 9)):
        return given
    names = ("train-00000-of-00002.jsonl", "data/train.jsonl", "train-0-of-99999999999999999999.jsonl", "train.parquet")
    name = draw(st.sampled_from(names))
    content = next(iter(given.files.values()), b"")
    return Input({name: content}, f"{name}: {given.words}", None, "folder")


# --- models


@st.composite
def code(draw: Draw) -> Input:
    """A model whose config names code of its own."""
    given = Input(valid.model(), read=draw(st.sampled_from(("inspect", "load"))))
    kind = draw(st.sampled_from(("gpt2", "own", "llama", "")))
    auto = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model", "AutoTokenizer": ["own.Tokenizer", None]}
    picked = {name: auto[name] for name in draw(st.sets(st.sampled_from(sorted(auto)), min_size=1))}
    files = dict(given.files) | {"own.py": f"{CODE}\n".encode()}
    for name, more in (("config.json", {"model_type": kind}), ("tokenizer_config.json", {"tokenizer_class": "Own"})):
        if name == "config.json" or draw(st.booleans()):
            files[name] = json.dumps(json.loads(files[name]) | more | {"auto_map": picked}).encode()  # type: ignore[arg-type]
    verdict = None if kind == "gpt2" else REFUSE
    return replace(given, files=files, words=f"code of {kind!r} with {sorted(picked)}", verdict=verdict)


@st.composite
def weights(draw: Draw) -> Input:
    """A model whose safetensors header was changed."""
    given = Input(valid.model(), read="load")
    data = valid.model()["model.safetensors"]
    (length,) = struct.unpack("<Q", data[:8])
    header, words = mutate(draw, "header.json", data[8 : 8 + length])
    claimed = draw(st.sampled_from((len(header), len(header), 0, 1, len(header) + 1, 2**31, 2**40, 2**63)))
    return given.with_file("model.safetensors", struct.pack("<Q", claimed) + header + data[8 + length :], words)


def model() -> st.SearchStrategy[Input]:
    """The folder of a model."""
    return st.one_of(attack(valid.model(), ("inspect", "load")), attack(valid.model(), ("load",)), code(), weights())


@st.composite
def gguf_numbers(draw: Draw) -> Input:
    """A .gguf with another number or word in its header."""
    given, data = Input(valid.gguf(), read=draw(st.sampled_from(("inspect", "load")))), valid.gguf()["tiny.gguf"]
    if draw(st.booleans()):
        words = (b"llama", b"llama.block_count", b"tokenizer.ggml.tokens", b"blk.0", b"token_embd", b"<s>")
        old, new = draw(st.sampled_from(words)), draw(st.sampled_from((b"gpt2\0", b"\xff" * 5, b"xxxxx", b"\x1b[31m")))
        return given.with_file("tiny.gguf", data.replace(old, (new * 5)[: len(old)]), f"{old!r} to {new!r}")
    at, value = draw(st.sampled_from(range(4, 800, 4))), draw(st.sampled_from((2, 20, *INTEGERS[:8])))
    return given.with_file("tiny.gguf", data[:at] + struct.pack("<I", value) + data[at + 4 :], f"{value} at {at}")


def gguf() -> st.SearchStrategy[Input]:
    """A model in one file."""
    return st.one_of(attack(valid.gguf(), ("inspect", "load")), gguf_numbers())


# --- commands, which print what they read

COMMANDS: dict[str, tuple[Callable[[], st.SearchStrategy[Input]], tuple[str, ...]]] = {
    "result": (lambda: st.one_of(odd_names(), attack(valid.result())),
               ("report", "compare", "convert", "view", "show", "export", "report --json", "compare --json")),
    "study": (study, ("report", "compare", "report --json", "compare --json")),
    "scores": (lambda: attack(valid.scores()), ("select", "convert", "select --json", "convert --json")),
    "ranking": (lambda: attack(valid.ranking()), ("select", "convert", "select --json", "convert --json")),
    "circuit.json": (lambda: circuit("json"), ("select", "convert", "view", "show", "export", "select --json")),
    "circuit.pt": (lambda: circuit("pt"), ("select", "convert", "view", "show", "export", "convert --json")),
    "circuit.npz": (lambda: circuit("npz"), ("select", "convert", "view", "show", "export", "convert --json")),
    "submission": (submission, ("check", "check --json")),
}  # fmt: skip


@st.composite
def command(draw: Draw) -> Input:
    """A command on one of the inputs above."""
    kind = draw(st.sampled_from(sorted(COMMANDS)))
    inputs, words = COMMANDS[kind]
    read = f"{kind} {draw(st.sampled_from(words))}"
    return replace(draw(inputs()), read=read, verdict=None, draws="report" in read)


@st.composite
def odd_names(draw: Draw) -> Input:
    """A consistent result whose names contain what a terminal or a figure could take for an instruction."""
    name, place = draw(st.sampled_from(TEXTS)), draw(st.sampled_from(("recipe", "model", "task", "split", "device")))
    run, curve, examples = (json.loads(valid.result()[file]) for file in ("run.json", "curve.json", "examples.json"))
    if place == "recipe":
        old = curve[1]["recipe"]
        curve[1]["recipe"] = curve[1]["alias"] = name
        overlap = run["overlap"].items()
        run["overlap"] = {b: {(name if m == old else m): v for m, v in both.items()} for b, both in overlap}
    elif place == "split":
        run["test"]["split"] = examples["split"] = name
    else:
        run[place] = name
    for prompt in examples["prompts"]:
        prompt["clean"][0] = prompt["correct"] = name
    changed = {"run.json": run, "curve.json": curve, "examples.json": examples}
    files = dict(valid.result()) | {file: json.dumps(data).encode() for file, data in changed.items()}
    return Input(files, f"{place} is {name[:40]!r}")
