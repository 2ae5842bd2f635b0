"""Train the embedded demo model from scratch, on the train splits of the built-in tasks; write its folder.

    python tools/train_demo.py

The result is an ordinary HuggingFace folder with a model card. The model speaks a small language of three
kinds of text: stories about two names (ioi), multiple-choice questions (mcqa) and spans of years
(greater-than). The same arguments, versions, kind of processor and number of threads give the same weights.
"""

from __future__ import annotations

import argparse
import json
import math
import random
import re
import sys
import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path

import torch
import transformers
from tokenizers import Regex, Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Split
from tokenizers.processors import TemplateProcessing
from torch import Tensor
from torch.nn import functional
from transformers import GPT2Config, GPT2LMHeadModel, PreTrainedTokenizerFast

from edgewise.tasks import GENERATORS, PromptPair, generators
from edgewise.tasks.tokens import answer_tokens

BOS, EOS, PAD, UNK = SPECIAL = ("<bos>", "<eos>", "<pad>", "<unk>")
# Words, single marks, and digits in pairs from the left; white space between them is dropped.
PIECE = r"[A-Za-z]+|[0-9]{1,2}|[^\sA-Za-z0-9]"
LAYERS, HEADS, WIDTH, CONTEXT = 4, 4, 64, 64
STEPS, WARMUP, PEAK_RATE, DECAY, CLIP = 3000, 100, 3e-3, 0.01, 1.0
# The standard deviation of the first weights; GPT-2's own 0.02 is meant for wider layers.
SPREAD = 0.05
# What isn't an answer is mostly chance (which name, which colour): it counts, but must not drown the answers.
OTHER_WEIGHT = 0.2
TESTED = 1000
LEAST_IOI = 0.95


@dataclass(frozen=True)
class Plan:
    """How a task is trained: pairs drawn from its train split, texts per step, and its share of the loss."""

    pairs: int
    batch: int
    weight: float


PLANS = {"ioi": Plan(30_000, 48, 1.0), "mcqa": Plan(60_000, 64, 1.5), "greater-than": Plan(12_000, 32, 0.5)}
# Greater-than has several right answers per prompt: each prompt appears with this many of them.
LATER_YEARS = 8


@dataclass(frozen=True)
class Texts:
    """A task's training text.

    ids      [text, position], padded at the end
    answers  [text] the position that predicts the answer, the last of the prompt
    """

    ids: Tensor
    answers: Tensor


@dataclass(frozen=True)
class Measured:
    """What the model does on a task's test split.

    accuracy   share of prompts whose most likely next token is the right one (greater-than: any later year)
    clean      mean logit(correct) - logit(incorrect) on clean prompts
    corrupted  the same on corrupted prompts
    positive   share of clean prompts on which that difference is positive
    negative   share of corrupted prompts on which it is negative
    mass       greater-than: probability of all later years minus that of the others; None elsewhere
    """

    accuracy: float
    clean: float
    corrupted: float
    positive: float
    negative: float
    mass: float | None

    @property
    def row(self) -> str:
        """The cells of the card's table."""
        gaps = f"{self.clean:.2f} | {self.positive:.1%} | {self.corrupted:.2f} | {self.negative:.1%}"
        return f"{self.accuracy:.1%} | {gaps}"


@dataclass(frozen=True)
class Settings:
    """The command line's choices."""

    out: Path
    steps: int
    seed: int
    threads: int

    @property
    def command(self) -> str:
        """The command that repeats this run, wherever it writes."""
        return f"python tools/train_demo.py --steps {self.steps} --seed {self.seed} --threads {self.threads}"


def words() -> list[str]:
    """Every word and mark that the three generators can write, in a fixed order."""
    templates = (*generators.IOI_TEMPLATES, *generators.YEAR_TEMPLATES, generators.MCQA_TEMPLATE)
    of_ioi = (generators.NAMES, generators.IOI_PLACES, generators.IOI_OBJECTS)
    lists = (*of_ioi, generators.THINGS, generators.COLOURS, generators.EVENTS, generators.LETTERS)
    text = " ".join([*(re.sub(r"\{.*?\}", " ", template) for template in templates), *chain(*lists)])
    return list(dict.fromkeys([*re.findall(PIECE, text), *(f"{number:02d}" for number in range(100))]))


def build_tokenizer() -> PreTrainedTokenizerFast:
    """One token per word, mark and pair of digits; `<bos>` in front, unless special tokens are refused."""
    vocabulary = {word: index for index, word in enumerate([*SPECIAL, *words()])}
    tokenizer = Tokenizer(WordLevel(vocabulary, unk_token=UNK))
    tokenizer.pre_tokenizer = Split(Regex(PIECE), behavior="removed", invert=True)
    tokenizer.post_processor = TemplateProcessing(single=f"{BOS} $A", special_tokens=[(BOS, vocabulary[BOS])])
    return PreTrainedTokenizerFast(
        tokenizer_object=tokenizer,
        bos_token=BOS,
        eos_token=EOS,
        pad_token=PAD,
        unk_token=UNK,
        model_max_length=CONTEXT,
    )


def build_model(tokenizer: PreTrainedTokenizerFast) -> GPT2LMHeadModel:
    """An untrained GPT-2 of the demo's shape."""
    config = GPT2Config(
        vocab_size=len(tokenizer), n_positions=CONTEXT, n_embd=WIDTH, n_layer=LAYERS, n_head=HEADS,
        resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0, initializer_range=SPREAD,
        bos_token_id=tokenizer.bos_token_id, eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
    )  # fmt: skip
    return GPT2LMHeadModel(config)


def both_ways(pairs: Iterable[PromptPair], chance: random.Random) -> Iterator[tuple[str, str]]:
    """(prompt, answer): the clean prompt with its answer, and the corrupted one with the other answer."""
    for pair in pairs:
        yield pair.clean, pair.correct
        yield pair.corrupted, pair.incorrect


def later_years(pairs: Iterable[PromptPair], chance: random.Random) -> Iterator[tuple[str, str]]:
    """(prompt, answer): the clean and the corrupted prompt, with years drawn evenly from the later ones."""
    for pair in pairs:
        for prompt in (*[pair.clean] * LATER_YEARS, pair.corrupted):
            yield prompt, f"{chance.randint(start_year(prompt) + 1, generators.FARTHEST):02d}"


def start_year(prompt: str) -> int:
    """The two-digit year in which a greater-than prompt begins."""
    pieces = re.findall(PIECE, prompt)
    return int(pieces[pieces.index("year") + 2])


@dataclass(frozen=True)
class Source:
    """A task: its generator, and how its pairs become (prompt, answer) texts."""

    generate: Callable[[PreTrainedTokenizerFast, str, int], Iterator[PromptPair]]
    texts: Callable[[Iterable[PromptPair], random.Random], Iterator[tuple[str, str]]]


SOURCES = {
    "ioi": Source(GENERATORS["ioi"], both_ways),
    "mcqa": Source(GENERATORS["mcqa"], both_ways),
    "greater-than": Source(GENERATORS["greater-than"], later_years),
}


def write_texts(task: str, tokenizer: PreTrainedTokenizerFast, seed: int) -> Texts:
    """A task's training text, from its train split only: `<bos>`, prompt, answer, full stop, `<eos>`."""
    pairs = islice(SOURCES[task].generate(tokenizer, "train", seed), PLANS[task].pairs)
    answered = SOURCES[task].texts(pairs, random.Random(f"{task}/{seed}"))
    texts = [f"{prompt}{answer}.{EOS}" for prompt, answer in answered]
    ids = [text.ids for text in tokenizer.backend_tokenizer.encode_batch_fast(texts)]
    rows = torch.nn.utils.rnn.pad_sequence(
        [torch.tensor(row) for row in ids], batch_first=True, padding_value=tokenizer.pad_token_id
    )
    # Every text ends with the answer, a full stop and <eos>; the token before these predicts the answer.
    return Texts(rows, torch.tensor([len(row) - 4 for row in ids]))


def loss_of(model: GPT2LMHeadModel, ids: Tensor, answers: Tensor) -> Tensor:
    """Mean cross-entropy of the answers, plus a smaller share of that of all other tokens."""
    logits = model(ids[:, :-1], use_cache=False).logits
    targets = ids[:, 1:]
    each = functional.cross_entropy(logits.transpose(1, 2), targets, reduction="none")
    is_answer = functional.one_hot(answers, targets.shape[1]).bool()
    is_other = (targets != model.config.pad_token_id) & ~is_answer
    return each[is_answer].mean() + OTHER_WEIGHT * each[is_other].mean()


def rate(step: int, steps: int) -> float:
    """The learning rate as a share of its peak: a linear rise, then half a cosine down to nothing."""
    if step < WARMUP:
        return (step + 1) / WARMUP
    return 0.5 * (1 + math.cos(math.pi * (step - WARMUP) / max(1, steps - WARMUP)))


def train(model: GPT2LMHeadModel, corpus: dict[str, Texts], steps: int, seed: int) -> None:
    """Train `model` in place; every step takes one batch of each task."""
    optimizer = torch.optim.AdamW(model.parameters(), lr=PEAK_RATE, betas=(0.9, 0.98), weight_decay=DECAY)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda step: rate(step, steps))
    source = torch.Generator().manual_seed(seed)
    began = time.monotonic()
    model.train()
    for step in range(1, steps + 1):
        losses = {}
        for task, texts in corpus.items():
            rows = torch.randint(len(texts.ids), (PLANS[task].batch,), generator=source)
            loss = loss_of(model, texts.ids[rows], texts.answers[rows])
            (PLANS[task].weight * loss).backward()
            losses[task] = loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 100 == 0 or step == steps:
            shown = "  ".join(f"{task} {loss:.3f}" for task, loss in losses.items())
            print(f"step {step}/{steps}  {time.monotonic() - began:.0f} s  loss: {shown}", flush=True)


def measure(model: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast, task: str, seed: int) -> Measured:
    """Run the model on the first `TESTED` pairs of a task's test split."""
    pairs = list(islice(SOURCES[task].generate(tokenizer, "test", seed), TESTED))
    clean = last_logits(model, tokenizer, [pair.clean for pair in pairs])
    corrupted = last_logits(model, tokenizer, [pair.corrupted for pair in pairs])
    named = [(pair.correct, pair.incorrect) for pair in pairs]
    answers = torch.tensor([[answer_tokens(answer, tokenizer)[0] for answer in two] for two in named])
    right = functional.one_hot(answers[:, 0], clean.shape[1]).bool()
    mass = None
    if task == "greater-than":
        numbers = torch.tensor([years_of(tokenizer, start_year(pair.clean)) for pair in pairs])
        right = numbers > 0
        mass = (clean.softmax(-1) * numbers).sum(-1).mean().item()
    clean_gap, corrupted_gap = (-run.gather(1, answers).diff().squeeze(1) for run in (clean, corrupted))
    return Measured(
        accuracy=right.gather(1, clean.argmax(-1, keepdim=True)).float().mean().item(),
        clean=clean_gap.mean().item(),
        corrupted=corrupted_gap.mean().item(),
        positive=(clean_gap > 0).float().mean().item(),
        negative=(corrupted_gap < 0).float().mean().item(),
        mass=mass,
    )


def years_of(tokenizer: PreTrainedTokenizerFast, start: int) -> list[int]:
    """Per token: 1 for a year after `start`, -1 for any other pair of digits, 0 for the rest."""
    signs, index = [0] * len(tokenizer), tokenizer.get_vocab()
    for year in range(100):
        signs[index[f"{year:02d}"]] = 1 if year > start else -1
    return signs


@torch.no_grad()
def last_logits(model: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast, prompts: list[str]) -> Tensor:
    """[prompt, vocabulary]: the logits behind each prompt's last token."""
    model.eval()
    batch = tokenizer(prompts, padding=True, padding_side="right", return_tensors="pt")
    last = batch["attention_mask"].sum(-1) - 1
    # The padding comes after the last token, which can't see it: no mask is needed.
    return model(batch["input_ids"], use_cache=False).logits[torch.arange(len(prompts)), last]


def write_folder(folder: Path, model: GPT2LMHeadModel, tokenizer: PreTrainedTokenizerFast, card: str) -> None:
    """Write the model, its tokenizer and its card as a HuggingFace folder."""
    folder.mkdir(parents=True, exist_ok=True)
    model.save_pretrained(folder)
    # It is written for its owner's eyes only; a package's files are for everybody.
    (folder / "model.safetensors").chmod(0o644)
    # It would only repeat the special tokens of config.json.
    (folder / "generation_config.json").unlink(missing_ok=True)
    tokenizer.backend_tokenizer.save(str(folder / "tokenizer.json"))
    # By hand, because the class name that save_pretrained writes is unknown to older versions of the library.
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "bos_token": BOS,
        "eos_token": EOS,
        "pad_token": PAD,
        "unk_token": UNK,
        "model_max_length": CONTEXT,
        "clean_up_tokenization_spaces": False,
    }
    (folder / "tokenizer_config.json").write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    (folder / "MODEL_CARD.md").write_text(card, encoding="utf-8")


CARD = """# The demo model of edgewise

A small GPT-2, trained from scratch on three built-in tasks. With it you can find circuits offline, in
seconds, in a model that solves the task. It is a toy, not a general language model.

- Architecture: GPT-2 (`GPT2LMHeadModel`), {layers} layers of {heads} heads, width {width}, context
  {context}, tied embeddings, no dropout; {parameters:,} parameters, float32.
- Tokenizer: {vocabulary} tokens: the words and marks of the tasks, the letters A to Z, the two-digit
  numbers 00 to 99 and `<bos>`, `<eos>`, `<pad>`, `<unk>`. White space is dropped; longer numbers are split
  into pairs of digits. Every text starts with `<bos>`.
- Data: the train splits of the built-in tasks `ioi`, `mcqa` and `greater-than`: {texts:,} synthetic texts,
  each `<bos>` prompt answer `.` `<eos>`. The corrupted prompts are included, with the other answer. For
  `greater-than` the answer is drawn uniformly from the later years up to {farthest}.
- Training: {steps} steps of {batch} texts, AdamW, peak learning rate {peak}, {warmup} steps of warm-up, then a
  cosine schedule. The mean loss of all other tokens has weight {other} relative to the answers.
  {seconds:.0f} seconds on {threads}.
- Command: `{command}` with torch {torch}, transformers {transformers}.
- Licence: MIT.

## Measured

On {tested} pairs of the test split of each task. None of their prompts is in the training text, except the
corrupted prompts of `greater-than`, which all splits share (a span from the year 01). Accuracy: the most
likely token is the answer (`greater-than`: a later year). Logit difference: correct minus incorrect
answer, mean over prompts. On corrupted prompts it should be negative; for `greater-than` it should be
near zero, because both answers are then allowed.

| task | accuracy | clean: logit difference | positive | corrupted: logit difference | negative |
|---|---|---|---|---|---|
{rows}

`greater-than`: all later years together have {mass:.3f} more probability than all other two-digit numbers.

## Limits

The model knows {vocabulary} tokens and the sentence patterns of three generators. Any other word becomes
`<unk>`, and it was not trained on other sentences. Its circuits show how this model solves these tasks. They
say nothing about larger models.
"""


def write_card(
    settings: Settings, model: GPT2LMHeadModel, texts: int, seconds: float, measured: dict[str, Measured]
) -> str:
    """The model card: how the model was made, and what it was measured to do."""
    rows = "\n".join(f"| {task} | {result.row} |" for task, result in measured.items())
    threads = "1 CPU thread" if settings.threads == 1 else f"{settings.threads} CPU threads"
    return CARD.format(
        layers=LAYERS, heads=HEADS, width=WIDTH, context=CONTEXT, parameters=model.num_parameters(),
        vocabulary=model.config.vocab_size, texts=texts, farthest=generators.FARTHEST, steps=settings.steps,
        batch=sum(plan.batch for plan in PLANS.values()), peak=PEAK_RATE, warmup=WARMUP, other=OTHER_WEIGHT,
        seed=settings.seed, seconds=seconds, threads=threads, command=settings.command,
        torch=torch.__version__, transformers=transformers.__version__, tested=TESTED, rows=rows,
        mass=measured["greater-than"].mass,
    )  # fmt: skip


def read_settings() -> Settings:
    """Parse the command line."""
    out = Path(__file__).resolve().parents[1] / "src" / "edgewise" / "demo"
    parser = argparse.ArgumentParser(description="Train the embedded demo model and write it with its card.")
    parser.add_argument("--out", type=Path, default=out, help="folder to write (default: src/edgewise/demo)")
    parser.add_argument("--steps", type=int, default=STEPS, help=f"training steps (default: {STEPS})")
    parser.add_argument("--seed", type=int, default=0, help="seed of data and weights (default: 0)")
    parser.add_argument("--threads", type=int, default=2, help="CPU threads (default: 2)")
    return Settings(**vars(parser.parse_args()))


def main() -> int:
    """Train, measure, and write; 1 if the model is too weak to be worth writing."""
    settings = read_settings()
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    torch.set_num_threads(settings.threads)
    torch.manual_seed(settings.seed)
    tokenizer = build_tokenizer()
    model = build_model(tokenizer)
    began = time.monotonic()
    corpus = {task: write_texts(task, tokenizer, settings.seed) for task in SOURCES}
    texts = sum(len(part.ids) for part in corpus.values())
    print(f"{texts} texts, {len(tokenizer)} tokens, {model.num_parameters()} parameters", flush=True)
    train(model, corpus, settings.steps, settings.seed)
    seconds = time.monotonic() - began
    measured = {task: measure(model, tokenizer, task, settings.seed) for task in SOURCES}
    for task, result in measured.items():
        shown = f"accuracy {result.accuracy:.1%}, logit difference {result.clean:.2f} clean"
        print(f"{task}: {shown}, {result.corrupted:.2f} corrupted")
    reached = measured["ioi"].accuracy
    if reached < LEAST_IOI:
        print(f"nothing written: {reached:.1%} of ioi is right, below {LEAST_IOI:.0%}", file=sys.stderr)
        return 1
    write_folder(settings.out, model, tokenizer, write_card(settings, model, texts, seconds, measured))
    return 0


if __name__ == "__main__":
    sys.exit(main())
