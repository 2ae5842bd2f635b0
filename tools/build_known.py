"""Build the embedded models whose circuits are known, verify them by exact patching, and write their folders.

    python tools/build_known.py

The weights are set, not trained. The stream has a subspace for every variable of the circuit, and one ("junk") for all
other activity. The nodes of the circuit read and write the subspaces of their variables. All other heads and MLPs read
anything and write mostly junk, which the circuit does not read; a little of what they write reaches the logits. A large
constant component keeps the scale of the norms almost the same for all prompts. Finally a random rotation mixes all
dimensions. Each model has nodes that mislead scorers: saturated attention, whose gradient is almost 0, heads that lower
the metric, and an MLP whose gradient is large although patching its input changes nothing ("decoy").
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
import transformers
from numpy.typing import NDArray
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import WhitespaceSplit
from tokenizers.processors import TemplateProcessing
from transformers import GPT2Config, GPT2LMHeadModel, LlamaConfig, LlamaForCausalLM

from edgewise import Circuit, InputError, Model, Task, evaluate_circuits, load_model, load_task
from edgewise.evaluate import faithfulness
from edgewise.evaluate.known import CIRCUIT_FILE
from edgewise.tasks import known

Array = NDArray[np.float64]
Dims = list[int]
BOS, UNK = SPECIAL = ("<bos>", "<unk>")
HEADS = 4
# The constant component of the stream, beside which all other components are small.
CONSTANT = 24.0
# The logit difference that a signal of size 1 in the output subspace makes.
LOGIT = 8.0
# Attention scores of a match. The sink, <bos>, has half of it: attention is saturated either way.
MATCH = 26.0
# A unit's threshold is sharp: its input is multiplied, its output divided by this.
SHARP = 24.0
ROPE_BASE = 1e6
TESTED = 100
# A true circuit: limits of the change by an edge outside, of the effect of one inside, and of faithfulness.
MAX_OUTSIDE, MIN_INSIDE, MIN_FAITHFULNESS = 0.01, 0.05, 0.99
# Where paths are redundant, an edge matters only if the other path is cut. Model -> the sets of edges to cut.
CUTS: dict[str, tuple[tuple[str, ...], ...]] = {"backup": (("a0.h3->a1.h0<k>",), ("a2.h2->logits",))}


class Draft:
    """The weights of a model in coordinates where every variable has dimensions of its own.

    Rows that read the stream are written for the stream before the norm: `read(dims)` gives the value there.
    Dimension 0 is the direction that layer norm removes, so nothing is written to it.
    """

    def __init__(
        self, family: str, layers: int, width: int, d_head: int, inner: int, words: Sequence[str], length: int,
        variables: dict[str, int], seed: int,
    ) -> None:  # fmt: skip
        self.family, self.layers, self.width, self.d_head, self.inner = family, layers, width, d_head, inner
        self.words, self.length, self.random = [*SPECIAL, *words], length, np.random.default_rng(seed)
        self.embed, self.unembed = np.zeros((2, len(self.words), width))
        self.positions = np.zeros((length, width))
        self.q, self.k, self.v = np.zeros((3, layers, HEADS, d_head, width))
        self.out = np.zeros((layers, HEADS, width, d_head))
        self.units_in, self.units_gate = np.zeros((2, layers, inner, width))
        self.units_out = np.zeros((layers, width, inner))
        self.n_units = [0] * layers
        self.used: set[tuple[int, int]] = set()
        first, self.dims = 1, {}
        for name, size in ({"constant": 1, "bos": 1} | variables).items():
            self.dims[name] = list(range(first, first + size))
            first += size
        self.dims["junk"] = list(range(first, width))
        self.embed[:, self.dims["constant"]] = CONSTANT
        self.embed[self.words.index(BOS), self.dims["bos"]] = 1.0

    def read(self, dims: Iterable[int]) -> Array:
        """Return rows that read these dimensions of the stream, as they were before the norm."""
        return np.eye(self.width)[list(dims)] * CONSTANT / np.sqrt(self.width)

    @property
    def one(self) -> Array:
        """A row that always reads 1."""
        return self.read(self.dims["constant"])[0] / CONSTANT

    @property
    def content(self) -> Dims:
        """The dimensions of a head that hardly rotate, the slowest first."""
        if self.family == "gpt2":
            return list(range(self.d_head))
        half = self.d_head // 2
        return [pair + part for pair in reversed(range(half)) for part in (0, half)]

    def attend_back(self, layer: int, head: int, steps: int) -> None:
        """Make a head attend to the position `steps` before its own."""
        scale = np.sqrt(self.d_head)
        if self.family == "gpt2":
            dims, angles = self.dims["position"], np.array([1.9, 1.1, 0.6, 0.25])
            cos, sin = (f(np.arange(self.length)[:, None] * angles) for f in (np.cos, np.sin))
            self.positions[:, dims] = np.concatenate([cos, sin], 1)
            reads = self.read(dims)
            half = len(angles)
            c, s = np.cos(steps * angles)[:, None], np.sin(steps * angles)[:, None]
            self.q[layer, head, :half] = MATCH * scale * (c * reads[:half] + s * reads[half:])
            self.q[layer, head, half : 2 * half] = MATCH * scale * (c * reads[half:] - s * reads[:half])
            self.k[layer, head, : 2 * half] = reads
            return
        half = self.d_head // 2
        for pair in range(4):
            angle = steps * ROPE_BASE ** (-pair / half)
            self.q[layer, head, pair] = MATCH * scale * self.one
            self.k[layer, head, pair] = np.cos(angle) * self.one
            self.k[layer, head, pair + half] = np.sin(angle) * self.one

    def attend(self, layer: int, head: int, q: Array, k: Array, sink: Array | None = None) -> None:
        """Make a head attend where rows q of the query match rows k of the key, else to <bos>."""
        dims, scale = self.content, MATCH * np.sqrt(self.d_head)
        self.q[layer, head, dims[: len(q)]] = scale * q
        self.k[layer, head, dims[: len(q)]] = k
        self.q[layer, head, dims[len(q)]] = scale * (0.5 * self.one if sink is None else sink)
        self.k[layer, head, dims[len(q)]] = self.read(self.dims["bos"])[0]

    def move(self, layer: int, head: int, pairs: Sequence[tuple[Dims, Array]], junk: float = 0.3) -> None:
        """Make a head write what it reads at the position it attends to: (dims to read, columns [width, read]) pairs.

        What is left of its dimensions moves anything to the junk subspace.
        """
        reads = sorted({dim for dims, _ in pairs for dim in dims})
        self.v[layer, head, : len(reads)] = self.read(reads)
        for dims, write in pairs:
            self.out[layer, head][:, [reads.index(dim) for dim in dims]] += write
        rest = range(len(reads), self.d_head)
        self.v[layer, head, rest] = self._random_reads(len(rest), 0.5)
        self.out[layer, head][np.ix_(self.dims["junk"], rest)] = self._normal((len(self.dims["junk"]), len(rest)), junk)
        self.used.add((layer, head))

    def to(self, dims: Dims, strength: float = 1.0) -> Array:
        """Return columns [width, dims] that write each value to its dimension."""
        return strength * np.eye(self.width)[:, dims]

    def add_unit(self, layer: int, read: Array, write: Array) -> None:
        """Add max(0, read . stream) * write to a layer's MLP."""
        unit, self.n_units[layer] = self.n_units[layer], self.n_units[layer] + 1
        self.units_in[layer, unit] = SHARP * read
        self.units_gate[layer, unit] = self.one
        self.units_out[layer, :, unit] = write / SHARP

    def add_decoy(self, layer: int, variable: Array, write: Array) -> None:
        """Add a function of a variable that is 0 at -1, 0 and 1, where its slope is 1, -1 and 1."""
        for slope, threshold in ((1, -1.8), (-2, -0.5), (2, 0.5)):
            self.add_unit(layer, variable - threshold * self.one, slope * write)
        # The first unit gives 0.8 too much everywhere.
        self.add_unit(layer, self.one, -0.8 * write)

    def add_decoys(
        self, head: tuple[int, int], sources: Dims, outputs: Dims, via: tuple[int, int], size: float
    ) -> None:
        """Make a head of the circuit also write which half a token is in, and MLPs that respond to it only between.

        head     the head of the circuit, which moves `sources`
        outputs  what the decoys would change, were their input not always -1, 0 or 1
        via      another head, which passes the half on to the last MLP
        """
        half, passed = self.dims["half"]
        halves = signs(len(sources))
        self.move(*head, [(sources, np.outer(np.eye(self.width)[half], halves))])
        self.attend_back(*via, 0)
        self.move(*via, [([half], self.to([passed]))])
        write = size * self.to(outputs) @ halves
        for layer, variable in ((via[0] - 1, half), (via[0], half), (via[0], passed)):
            self.add_decoy(layer, self.read([variable])[0], write)

    def add_noise(self, sources: Dims, outputs: Dims, leak: float, junk: float = 0.5) -> None:
        """Give all other heads and units random weights.

        They read anything and write junk. Heads also copy `sources` to `outputs`, and units write to the outputs, with
        a strength of about `leak`; for heads it is in turn positive and negative.
        """
        sign = 1.0
        n, junk_dims = len(sources), self.dims["junk"]
        self.positions[:, junk_dims] = self._normal((self.length, len(junk_dims)), 0.2)
        for layer in range(self.layers):
            for head in range(HEADS):
                if (layer, head) in self.used:
                    continue
                self.q[layer, head] = self._random_reads(self.d_head, 1.5)
                self.k[layer, head] = self._random_reads(self.d_head, 1.0)
                self.v[layer, head] = self._random_reads(self.d_head, 0.5)
                self.out[layer, head][junk_dims] = self._normal((len(junk_dims), self.d_head), junk)
                self.v[layer, head, :n] = self.read(sources)
                self.out[layer, head][outputs, range(n)] = sign * leak * self.random.uniform(0.5, 1.5)
                sign = -sign
            count = self.inner - self.n_units[layer]
            rows = slice(self.n_units[layer], self.inner)
            self.units_in[layer, rows] = self._random_reads(count, 1.0) + self._normal((count, 1), 0.5) * self.one
            self.units_gate[layer, rows] = self._random_reads(count, 0.3) + self.one
            self.units_out[layer, junk_dims, rows] = self._normal((len(junk_dims), count), junk / np.sqrt(count))
            self.units_out[layer, outputs, rows] = self._normal((len(outputs), count), leak / 20)

    def _random_reads(self, count: int, size: float) -> Array:
        dims = range(self.dims["bos"][0], self.width)
        return self._normal((count, len(dims)), size / np.sqrt(len(dims))) @ self.read(dims)

    def _normal(self, shape: tuple[int, ...], size: float) -> Array:
        return size * self.random.standard_normal(shape)

    def rotate(self) -> None:
        """Mix all dimensions of the stream. The norms do not see it: dimension 0 becomes the mean of all."""
        basis = np.concatenate([np.ones((self.width, 1)), self._normal((self.width, self.width - 1), 1.0)], 1)
        rotation = np.linalg.qr(basis)[0]  # its first column is parallel to ones
        for name in ("embed", "positions", "unembed", "q", "k", "v", "units_in", "units_gate"):
            setattr(self, name, getattr(self, name) @ rotation.T)
        self.out, self.units_out = rotation @ self.out, rotation @ self.units_out

    def build(self) -> GPT2LMHeadModel | LlamaForCausalLM:
        """Return a model of the family with these weights."""
        ids = {"bos_token_id": 0, "eos_token_id": None, "pad_token_id": None, "tie_word_embeddings": False}
        merged = {name: getattr(self, name).reshape(self.layers, -1, self.width) for name in "qkv"}
        outs = np.moveaxis(self.out, 1, 2).reshape(self.layers, self.width, -1)
        if self.family == "gpt2":
            config = GPT2Config(
                vocab_size=len(self.words), n_positions=self.length, n_embd=self.width, n_layer=self.layers,
                n_head=HEADS, n_inner=self.inner, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, **ids,
            )  # fmt: skip
            model = GPT2LMHeadModel(config)
            weights = {"transformer.wte": self.embed, "transformer.wpe": self.positions, "lm_head": self.unembed}
            for layer in range(self.layers):
                name = f"transformer.h.{layer}"
                weights |= {
                    f"{name}.attn.c_attn": np.concatenate([merged[part][layer] for part in "qkv"]).T,
                    f"{name}.attn.c_proj": outs[layer].T,
                    f"{name}.mlp.c_fc": self.units_in[layer].T,
                    f"{name}.mlp.c_proj": self.units_out[layer].T,
                }
        else:
            config = LlamaConfig(
                vocab_size=len(self.words), max_position_embeddings=self.length, hidden_size=self.width,
                num_hidden_layers=self.layers, num_attention_heads=HEADS, num_key_value_heads=HEADS,
                head_dim=self.d_head, intermediate_size=self.inner, rope_theta=ROPE_BASE, **ids,
            )  # fmt: skip
            model = LlamaForCausalLM(config)
            weights = {"model.embed_tokens": self.embed, "lm_head": self.unembed}
            for layer in range(self.layers):
                name = f"model.layers.{layer}"
                weights |= {f"{name}.self_attn.{part}_proj": merged[part][layer] for part in "qkv"}
                weights |= {
                    f"{name}.self_attn.o_proj": outs[layer],
                    f"{name}.mlp.gate_proj": self.units_in[layer],
                    f"{name}.mlp.up_proj": self.units_gate[layer],
                    f"{name}.mlp.down_proj": self.units_out[layer],
                }
        with torch.no_grad():
            for name, value in weights.items():
                weight = model.get_submodule(name).weight
                weight.copy_(torch.tensor(value).reshape(weight.shape))
        return model.eval()


def signs(count: int) -> Array:
    """Return 1 for the first half and -1 for the second."""
    return np.where(np.arange(count) < count // 2, 1.0, -1.0)


def induction() -> Draft:
    """A head that finds the previous token, and three heads that copy: a strong, a weak and a negative one."""
    words = known.INDUCTION_WORDS
    n = len(words)
    variables = {"token": n, "previous": n, "output": n, "half": 2, "position": 8}
    draft = Draft("gpt2", 3, 64, 16, 48, words, known.INDUCTION_CONTEXT + 2, variables, seed=1)
    token, previous, output = (draft.dims[name] for name in ("token", "previous", "output"))
    draft.embed[2:, token] = np.eye(n)
    draft.unembed[2:] = LOGIT * draft.read(output)
    draft.attend_back(0, 1, 1)
    draft.move(0, 1, [(token, draft.to(previous))])
    for layer, head, strength in ((1, 2, 1.0), (2, 0, 0.13), (2, 3, -0.25)):
        draft.attend(layer, head, draft.read(token), draft.read(previous))
        draft.move(layer, head, [(token, draft.to(output, strength))])
    draft.add_decoys((1, 2), token, output, (2, 1), 0.15)
    draft.add_noise(token, output, leak=0.03)
    return draft


def ioi() -> Draft:
    """Find the repeated name, inhibit it, copy the other name; a weak copying head and a negative one."""
    words = known.SOURCES["known/ioi"][1]
    n = len(known.NAMES)
    variables = {"token": len(words), "repeated": n, "output": n, "marked": 1, "half": 2}
    draft = Draft("llama", 4, 48, 24, 32, words, known.IOI_LENGTH + 1, variables, seed=2)
    token, repeated, output = (draft.dims[name] for name in ("token", "repeated", "output"))
    names, mark = token[:n], token[n : n + 1]
    draft.embed[2:, token] = np.eye(len(words))
    draft.unembed[2 : 2 + n] = LOGIT * draft.read(output)
    draft.attend_back(0, 2, 1)
    draft.move(0, 2, [(mark, draft.to(draft.dims["marked"]))])
    draft.attend(1, 1, draft.one[None], draft.read(draft.dims["marked"]))
    draft.move(1, 1, [(names, draft.to(repeated))])
    for layer, head, strength in ((2, 0, 1.0), (3, 1, 0.12)):
        query = np.concatenate([-draft.read(repeated), draft.one[None]])
        key = np.concatenate([draft.read(names), draft.read(names).sum(0, keepdims=True)])
        draft.attend(layer, head, query, key)
        draft.move(layer, head, [(names, draft.to(output, strength))])
    draft.attend(3, 2, draft.read(output), draft.read(names))
    draft.move(3, 2, [(names, draft.to(output, -0.4))])
    draft.add_decoys((2, 0), names, output, (3, 3), 0.15)
    draft.add_noise(names, output, leak=0.03)
    return draft


def greater_than() -> Draft:
    """Two heads move the number; an MLP suppresses all numbers up to it, and another undoes a part of that."""
    n = len(known.NUMBERS)
    words = known.SOURCES["known/greater-than"][1]
    variables = {"token": len(words), "value": 1, "number": 1, "first": 1, "second": 1, "output": n}
    draft = Draft("gpt2", 3, 56, 14, 72, words, known.NUMBER_LENGTH + 1, variables, seed=3)
    token, value, number, output = (draft.dims[name] for name in ("token", "value", "number", "output"))
    draft.embed[2:, token] = np.eye(len(words))
    draft.embed[2 : 2 + n, value] = (np.arange(n)[:, None] + 1) / n
    draft.embed[2 : 2 + n, number] = 1.0
    draft.unembed[2 : 2 + n] = LOGIT * draft.read(output)
    for layer, head, name, strength in ((0, 2, "first", -1.1), (1, 3, "second", 0.1)):
        moved = draft.dims[name]
        draft.attend(layer, head, draft.one[None], draft.read(number))
        draft.move(layer, head, [(value, draft.to(moved))])
        for answer in range(n):
            # It rises from 0 to 1 around answer - 0.5.
            above = n * draft.read(moved)[0] - (answer + 0.5) * draft.one
            write = 2 * strength * draft.to(output)[:, answer]
            draft.add_unit(layer + 1, above + 0.25 * draft.one, write)
            draft.add_unit(layer + 1, above - 0.25 * draft.one, -write)
    # A decoy: a function of the number that is 0 at every whole number, where its slope is 1.
    moved, write = n * draft.read(draft.dims["first"])[0] - draft.one, 0.05 * draft.to(output) @ np.linspace(-1, 1, n)
    draft.add_unit(2, moved + 2 * draft.one, write)
    draft.add_unit(2, draft.one, -write)
    for whole in range(-1, n):
        draft.add_unit(2, moved - (whole + 0.25) * draft.one, -2 * write)
        draft.add_unit(2, moved - (whole + 0.75) * draft.one, 2 * write)
    draft.add_noise(token[:n], output, leak=0.1, junk=0.9)
    return draft


def backup() -> Draft:
    """As induction, but a second strong head copies only if the first does not."""
    words = known.BACKUP_WORDS
    n = len(words)
    variables = {"token": n, "previous": n, "output": n, "copied": 1, "half": 2}
    draft = Draft("llama", 3, 48, 24, 32, words, known.BACKUP_CONTEXT + 2, variables, seed=4)
    token, previous, output, copied = (draft.dims[name] for name in ("token", "previous", "output", "copied"))
    draft.embed[2:, token] = np.eye(n)
    draft.unembed[2:] = LOGIT * draft.read(output)
    draft.attend_back(0, 3, 1)
    draft.move(0, 3, [(token, draft.to(previous))])
    draft.attend(1, 0, draft.read(token), draft.read(previous))
    draft.move(1, 0, [(token, draft.to(output)), (token, draft.to(copied) * np.ones(n))])
    draft.attend(2, 2, draft.read(token), draft.read(previous), 0.5 * draft.one + draft.read(copied)[0])
    draft.move(2, 2, [(token, draft.to(output))])
    draft.attend(2, 1, draft.read(token), draft.read(previous))
    draft.move(2, 1, [(token, draft.to(output, 0.1))])
    draft.add_decoys((1, 0), token, output, (2, 0), 0.15)
    draft.add_noise(token, output, leak=0.03)
    return draft


INDUCTION_HEADS = ("a1.h2", "a2.h0", "a2.h3")
COPIES = ("input->{0}<q>", "input->{0}<v>", "{0}->logits")
DRAFTS: dict[str, tuple[Callable[[], Draft], tuple[str, ...]]] = {
    "induction": (
        induction,
        (
            "input->a0.h1<v>",
            *(edge.format(head) for head in INDUCTION_HEADS for edge in (*COPIES, "a0.h1->{0}<k>")),
        ),
    ),
    "ioi": (
        ioi,
        (
            "input->a0.h2<v>", "a0.h2->a1.h1<k>", "input->a1.h1<v>",
            "a1.h1->a2.h0<q>", "input->a2.h0<k>", "input->a2.h0<v>", "a2.h0->logits",
            "a1.h1->a3.h1<q>", "input->a3.h1<k>", "input->a3.h1<v>", "a3.h1->logits",
            "a2.h0->a3.h2<q>", "input->a3.h2<k>", "input->a3.h2<v>", "a3.h2->logits",
        ),
    ),
    "greater-than": (
        greater_than,
        (
            "input->a0.h2<k>", "input->a0.h2<v>", "a0.h2->m1", "m1->logits",
            "input->a1.h3<k>", "input->a1.h3<v>", "a1.h3->m2", "m2->logits",
        ),
    ),
    "backup": (
        backup,
        (
            "input->a0.h3<v>", "a1.h0->a2.h2<q>",
            *(edge.format(head) for head in ("a1.h0", "a2.h2", "a2.h1") for edge in (*COPIES, "a0.h3->{0}<k>")),
        ),
    ),
}  # fmt: skip


def write_folder(folder: Path, draft: Draft) -> None:
    """Write a model and its tokenizer as a HuggingFace folder."""
    folder.mkdir(parents=True, exist_ok=True)
    draft.build().save_pretrained(folder)
    (folder / "model.safetensors").chmod(0o644)
    (folder / "generation_config.json").unlink(missing_ok=True)
    if draft.family == "llama":  # transformers 4 reads rope_theta, transformers 5 rope_parameters
        config = json.loads((folder / "config.json").read_text(encoding="utf-8")) | {"rope_theta": ROPE_BASE}
        (folder / "config.json").write_text(json.dumps(config, indent=2) + "\n", encoding="utf-8")
    tokenizer = Tokenizer(WordLevel({word: index for index, word in enumerate(draft.words)}, unk_token=UNK))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    tokenizer.post_processor = TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, 0)])
    tokenizer.save(str(folder / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "unk_token": UNK,
        "model_max_length": draft.length,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


@dataclass(frozen=True, eq=False)
class TruthCheck:
    """What exact patching says about a circuit.

    truth         the circuit
    effects       [edge] how far the mean metric falls if the edge alone is patched, as a share of the difference
                  between the model and the empty circuit; with cuts, the effect of the largest size over them
    changes       [edge] the same, but the mean over examples of the size of the change, so at least |effect|
    faithfulness  of the circuit
    """

    truth: Circuit
    effects: NDArray[np.float64]
    changes: NDArray[np.float64]
    faithfulness: float

    @property
    def strongest_outside(self) -> float:
        """The largest change by an edge outside the circuit."""
        return float(self.changes[~self.truth.mask].max(initial=0.0))

    @property
    def weakest_inside(self) -> float:
        """The smallest size of the effect of an edge inside the circuit."""
        return float(np.abs(self.effects[self.truth.mask]).min(initial=np.inf))

    @property
    def is_verified(self) -> bool:
        """Whether the circuit is true: edges outside do not matter, edges inside do, and it is faithful."""
        is_split = self.strongest_outside <= MAX_OUTSIDE and self.weakest_inside >= MIN_INSIDE
        return is_split and self.faithfulness >= MIN_FAITHFULNESS


def check_truth(model: Model, task: Task, truth: Circuit, cuts: Sequence[Sequence[str]] = ()) -> TruthCheck:
    """Patch every edge of a model alone, and run a circuit that is claimed to be the true one.

    `cuts` are sets of edges. Where paths are redundant, an edge matters only if the other path is cut, so every edge is
    also patched in the model without each of these sets.
    """
    if not truth.n_edges:
        raise InputError("a true circuit needs edges, but this one has none")
    graph = model.graph
    bases = [np.ones(graph.n_edges, bool)]
    bases += [~Circuit.from_edges(graph, cut).mask for cut in cuts]
    singles = ~np.eye(graph.n_edges, dtype=bool)
    circuits = [Circuit(graph, mask) for base in bases for mask in (base, *(base & singles))]
    ran = evaluate_circuits(model, task, [truth, *circuits])
    values = ran.values[1:].reshape(len(bases), graph.n_edges + 1, len(task))
    falls = (values[:, :1] - values[:, 1:]) / (ran.full.mean() - ran.empty.mean())
    means = falls.mean(-1)
    strongest = np.abs(means).argmax(0)
    return TruthCheck(
        truth=truth,
        effects=means[strongest, np.arange(graph.n_edges)],
        changes=np.abs(falls).mean(-1).max(0),
        faithfulness=float(faithfulness(ran.values[0].mean(), ran.full.mean(), ran.empty.mean())),
    )


def build(name: str, folder: Path) -> TruthCheck:
    """Build a model, write it with its true circuit, and verify the circuit on test examples."""
    make, edges = DRAFTS[name]
    draft = make()
    draft.rotate()
    write_folder(folder, draft)
    model = load_model(folder, device="cpu")
    truth = Circuit.from_edges(model.graph, edges)
    truth.save(folder / CIRCUIT_FILE, about={"model": f"{known.PREFIX}{name}"})
    task = load_task(f"{known.PREFIX}{name}", model, "test", TESTED)
    return check_truth(model, task, truth, CUTS.get(name, ()))


def main() -> int:
    """Build, verify and write all models; 1 if a circuit is not what it should be."""
    default = Path(__file__).resolve().parents[1] / "src" / "edgewise" / "known"
    parser = argparse.ArgumentParser(description="Build the embedded models whose circuits are known.")
    parser.add_argument("--out", type=Path, default=default, help="folder to write (default: src/edgewise/known)")
    parser.add_argument("names", nargs="*", default=list(DRAFTS), help="which models (default: all)")
    arguments = parser.parse_args()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(1)
    print("| model | edges | inside | strongest outside | weakest inside | faithfulness |\n|---|---|---|---|---|---|")
    is_good = True
    for name in arguments.names:
        result = build(name, arguments.out / name)
        sizes = f"{result.truth.graph.n_edges} | {result.truth.n_edges}"
        effects = f"{result.strongest_outside:.2%} | {result.weakest_inside:.1%}"
        print(f"| {name} | {sizes} | {effects} | {result.faithfulness:.4f} |", flush=True)
        is_good &= result.is_verified
    return 0 if is_good else 1


if __name__ == "__main__":
    sys.exit(main())
