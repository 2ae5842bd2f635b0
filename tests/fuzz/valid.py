"""Small valid inputs of every kind, made by the package itself."""

from __future__ import annotations

import json
import tempfile
from functools import cache
from importlib.resources import files
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np

from edgewise import CMD, CPR, Bootstrap, Circuit, EdgeScores, Graph, Greedy, Ilp, Ranking, Settings, load_model
from edgewise.graph import BaseGraph, NeuronGraph, NodeGraph, SpanGraph

GRAPH = Graph(2, 2, 8)
SPANS, NODES, NEURONS = SpanGraph(GRAPH, ("S1", "end")), NodeGraph(GRAPH, ((4, 6),)), NeuronGraph(GRAPH)
SIZES = (0.05, 0.3, 1.0)
DEMO = Path(str(files("edgewise"))) / "demo"
RESULT_FILES = (
    "run.json",
    "curve.json",
    "circuits.npz",
    "statistics.npz",
    "learned.npz",
    "learned.json",
    "attention.npz",
    "examples.json",
    "scores/scores.json",
    "scores/scores.npy",
)
HAS_GGUF = all(find_spec(name) is not None for name in ("gguf", "accelerate"))


def _contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


def _values(rows: int, graph: BaseGraph = GRAPH) -> np.ndarray:
    return np.random.default_rng(0).normal(size=(rows, graph.n_edges))


@cache
def circuit(graph: BaseGraph = GRAPH) -> dict[str, bytes]:
    """A circuit with scores, as EAP-IG json and pt (these hold no pairs), and as npz."""
    with tempfile.TemporaryDirectory() as name:
        saved = Circuit(graph, np.arange(graph.n_edges) % 3 == 0)
        for suffix in ("npz",) if isinstance(graph, SpanGraph) else ("json", "pt", "npz"):
            saved.save(Path(name) / f"circuit.{suffix}", _values(1, graph)[0], {"model": "tiny", "rank": "absolute"})
        return _contents(Path(name))


@cache
def scores() -> dict[str, bytes]:
    """A score folder."""
    with tempfile.TemporaryDirectory() as name:
        EdgeScores(GRAPH, _values(3), {"model": "tiny", "task": "random", "seconds": 0.5}).save(Path(name) / "scores")
        return _contents(Path(name) / "scores")


@cache
def ranking() -> dict[str, bytes]:
    """A ranking with resamples."""
    with tempfile.TemporaryDirectory() as name:
        values = _values(3)
        about = {"learner": {"name": "learned", "steps": 2}, "losses": [0.5, 0.25], "trend": -0.5}
        Ranking(GRAPH, values[0], origin=about, resampled=values[1:]).save(Path(name) / "ranking")
        return _contents(Path(name) / "ranking")


@cache
def result() -> dict[str, bytes]:
    """A result folder: what its readers read."""
    from edgewise import Recipe, discover, write_result
    from edgewise.learn import TopKLearner
    from edgewise.recipes.recipe import GREEDY

    learned = Recipe(learner=TopKLearner(steps=2, batch=2))
    recipes = {CMD: (GREEDY, Recipe(Ilp(), Bootstrap(5), pnr=0.5), learned), CPR: (GREEDY,)}
    with tempfile.TemporaryDirectory() as name:
        run = discover(_tiny(), _task(6, "train"), _task(5, "test"), Settings(sizes=SIZES), recipes, stability=2)
        write_result(run, Path(name) / "result")
        contents = _contents(Path(name) / "result")
    return {name: data for name, data in contents.items() if name in RESULT_FILES}


def _tiny() -> Any:
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    from edgewise import wrap_model

    torch.manual_seed(0)
    config = GPT2Config(vocab_size=67, n_positions=32, n_embd=8, n_layer=2, n_head=2, bos_token_id=0, eos_token_id=0)
    return wrap_model(GPT2LMHeadModel(config), name="tiny")


def _task(count: int, split: str) -> Any:
    from edgewise.tasks import Example, Task

    rng = np.random.default_rng(count)
    clean = rng.integers(67, size=(count, 5))
    corrupted = clean.copy()
    corrupted[:, 2] = (clean[:, 2] + 3) % 67
    pairs = zip(clean.tolist(), corrupted.tolist(), strict=True)
    return Task("random", split, tuple(Example(tuple(pair[0]), tuple(pair[1]), 1, 2) for pair in pairs))


@cache
def study() -> dict[str, bytes]:
    """The data of a study folder: its plan, and the unit of its only cell."""
    from edgewise.study import Grid, Plan, run_study
    from edgewise.study.folder import write_study_data

    grid = Grid(tau=(5,), kappa=(), pnr=(0.5,), solvers=(Greedy(), Ilp()))
    with tempfile.TemporaryDirectory() as name:
        write_study_data(Path(name), run_study(Plan(("demo",), ("ioi",), 1, 6, grid, Settings(sizes=SIZES))))
        return _contents(Path(name))


@cache
def unit() -> dict[str, bytes]:
    """A store with one unit of two arrays."""
    from edgewise.runtime.store import Store, Unit

    with tempfile.TemporaryDirectory() as name:
        arrays = {"values": _values(3), "flags": np.arange(8) % 2 == 0}
        Store(Path(name) / "store").save("scores-1", Unit(arrays, {"seconds": 1.5, "names": ["a", "b"]}))
        return _contents(Path(name) / "store")


SPLITS = ("train", "train", "validation", "test")
TEXT = ("clean", "corrupted", "correct", "incorrect")
TOKENS = ("clean_ids", "corrupted_ids", "correct_id", "incorrect_id")


@cache
def demo() -> Any:
    """The embedded model."""
    return load_model("demo")


@cache
def text_rows() -> tuple[dict[str, Any], ...]:
    """Rows of a task file of text that the embedded model's tokenizer knows."""
    from edgewise import load_task

    pairs = [example.text for example in load_task("ioi", demo(), "train", 4).examples]
    return tuple(
        {name: getattr(pair, name) for name in TEXT} | {"split": split}
        for pair, split in zip(pairs, SPLITS, strict=True)
    )


@cache
def token_rows() -> tuple[dict[str, Any], ...]:
    """Rows of a task file of tokens."""
    rows = [(list(e.clean), list(e.corrupted), e.correct, e.incorrect) for e in _task(4, "train").examples]
    return tuple(
        dict(zip((*TOKENS, "split"), (*row, split), strict=True)) for row, split in zip(rows, SPLITS, strict=True)
    )


@cache
def mib_rows() -> tuple[dict[str, Any], ...]:
    """Rows of the benchmark's ioi set, of names that the embedded model's tokenizer knows."""
    rows = []
    for row in text_rows():
        indirect, subject = row["correct"].strip(), row["incorrect"].strip()
        rows.append(
            {
                "prompt": row["clean"],
                "metadata": {"indirect_object": indirect, "subject": subject, "random_c": subject},
                "choices": [indirect, subject],
                "answerKey": 0,
                "s2_io_flip_counterfactual": {
                    "prompt": row["corrupted"],
                    "choices": [subject, indirect],
                    "answerKey": 0,
                },
            }
        )
    return tuple(rows)


@cache
def model() -> dict[str, bytes]:
    """The folder of a tiny model with a tokenizer."""
    import torch
    from transformers import GPT2Config, GPT2LMHeadModel

    torch.manual_seed(0)
    known = json.loads((DEMO / "config.json").read_text())
    config = GPT2Config(**known | {"n_embd": 8, "n_head": 2, "n_layer": 2, "n_positions": 16})
    with tempfile.TemporaryDirectory() as name:
        GPT2LMHeadModel(config).save_pretrained(name)
        contents = _contents(Path(name))
    return contents | {file: (DEMO / file).read_bytes() for file in ("tokenizer.json", "tokenizer_config.json")}


@cache
def gguf() -> dict[str, bytes]:
    """A tiny model in one file."""
    from gguf import GGUFWriter

    words = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *map(chr, range(97, 123)), "▁"]
    rng = np.random.default_rng(0)
    with tempfile.TemporaryDirectory() as name:
        file = GGUFWriter(Path(name) / "tiny.gguf", "llama")
        file.add_context_length(16)
        file.add_embedding_length(8)
        file.add_block_count(2)
        file.add_feed_forward_length(16)
        file.add_head_count(2)
        file.add_head_count_kv(2)
        file.add_layer_norm_rms_eps(1e-5)
        file.add_rope_dimension_count(4)
        file.add_vocab_size(len(words))
        file.add_tokenizer_model("llama")
        file.add_token_list(words)
        file.add_token_scores([0.0] * len(words))
        file.add_token_types([2, 3, 3] + [6] * 256 + [1] * 27)
        file.add_bos_token_id(1)
        file.add_eos_token_id(2)
        file.add_unk_token_id(0)
        parts = {"attn_norm": (8,), "attn_q": (8, 8), "attn_k": (8, 8), "attn_v": (8, 8), "attn_output": (8, 8),
                 "ffn_norm": (8,), "ffn_gate": (16, 8), "ffn_up": (16, 8), "ffn_down": (8, 16)}  # fmt: skip
        shapes = {"token_embd": (len(words), 8), "output_norm": (8,), "output": (len(words), 8)}
        shapes |= {f"blk.{layer}.{part}": shape for layer in range(2) for part, shape in parts.items()}
        for tensor, shape in shapes.items():
            file.add_tensor(f"{tensor}.weight", rng.normal(size=shape).astype(np.float32))
        file.write_header_to_file()
        file.write_kv_data_to_file()
        file.write_tensors_to_file()
        file.close()
        return _contents(Path(name))


@cache
def submission() -> dict[str, bytes]:
    """A submission of importances and circuits for small stand-ins of the benchmark's models."""
    contents = {}
    for task, name in (("ioi", "gpt2"), ("mcqa", "gemma2")):
        contents[f"{task}_{name}/importances.json"] = circuit()["circuit.json"]
        contents[f"abs-True/{task}_{name}/x.pt"] = circuit()["circuit.pt"]
    return contents
