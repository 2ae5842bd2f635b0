"""The result of a run: outcomes, tuning, and facts. Needs no torch, so that reading a result folder is fast."""

from __future__ import annotations

import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any, TypedDict

import numpy as np
from numpy.typing import NDArray

from ..core.circuit import Circuit
from ..core.ranking import Ranking
from ..core.scores import EdgeScores
from ..core.statistics import EdgeStatistics
from ..errors import InputError
from ..evaluate import MEASURES, Attention, Comparison, Curve, Measure, Resampled, resample
from ..graph import Graph
from ..io.records import Decoders, convert_record
from ..learn import Learner
from ..method import from_record
from ..select import Selection
from .recipe import GREEDY, TUNED, Recipe
from .settings import Settings

if TYPE_CHECKING:
    from ..models import Model
    from ..tasks import Example, Task

FloatArray = NDArray[np.float64]
VERSIONED_PACKAGES = ("edgewise", "numpy", "torch", "transformers", "highspy")
MAX_PROMPTS = 500
# Of all prompts together: more would fit neither into the viewer's page nor into a file that is read back.
MAX_TOKENS = 100_000
# What SentencePiece writes for a space.
SENTENCEPIECE_SPACE = "▁"
RULE = "the best area of the curve over all held-out examples; ties go to the first, which is the simpler"


@dataclass(frozen=True, eq=False)
class RankedRecipe:
    """A recipe, the measure that it is for, and the ranking that it selects from."""

    measure: Measure
    recipe: Recipe
    ranking: Ranking


@dataclass(frozen=True, eq=False)
class Outcome:
    """The circuits of one recipe for one measure, one per size, and their curve.

    selections  one per size. Read from a folder, circuits are loaded when they are accessed.
    rankings    what the circuits were selected from, one per size. Empty if the outcome was read from a folder.
    chosen_on   the split that the recipe was chosen on, if it was chosen without the evaluated examples. Otherwise
                empty.
    choices     of a portfolio: the name of the recipe that each size takes
    """

    measure: Measure
    recipe: Recipe
    selections: Sequence[Selection]
    curve: Curve
    rankings: tuple[Ranking, ...] = ()
    chosen_on: str = ""
    choices: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return self.recipe.name

    @property
    def circuits(self) -> tuple[Circuit, ...]:
        return tuple(selection.circuit for selection in self.selections)

    @cached_property
    def area(self) -> float:
        """CPR, CMD or the area of a custom measure."""
        return self.curve.area(self.measure)

    @cached_property
    def resampled(self) -> Resampled:
        """The area on bootstrap resamples of the evaluated examples: its interval, and paired comparisons."""
        return resample(self.curve, self.measure)

    def __repr__(self) -> str:
        return f"Outcome({self.measure.name} {self.name}: {self.area:.4f})"


@dataclass(frozen=True)
class ModelAccuracy:
    """How well the model does a task, as shares of the examples.

    top    examples whose most likely next token is a correct answer
    beats  examples whose correct answer has a higher logit than the incorrect one
    """

    top: float
    beats: float


class TuningRecord(TypedDict):
    """What `Tuning.record` writes."""

    folds: int
    examples: int
    rule: str
    chosen: Mapping[str, Mapping[str, Any]]
    candidates: Mapping[str, Sequence[Mapping[str, Any]]]


@dataclass(frozen=True)
class Candidate:
    """A recipe and its area on the held-out examples: of all folds together, and of each (None if undefined there)."""

    recipe: Recipe
    area: float
    folds: tuple[float | None, ...]

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        return {"method": self.recipe.name, **self.recipe.record(), "area": self.area, "folds": list(self.folds)}


@dataclass(frozen=True)
class Tuning:
    """The result of a cross-validation.

    candidates  measure -> candidates. Ties go to the first.
    lead        measure -> the best candidate's area minus the baseline's, paired over the held-out examples. The best
                was chosen on these examples, so this is slightly optimistic.
    """

    examples: int
    n_folds: int
    candidates: Mapping[Measure, tuple[Candidate, ...]]
    lead: Mapping[Measure, Comparison]

    def best(self, measure: Measure) -> Candidate:
        """Return the candidate of the best area."""
        return max(self.candidates[measure], key=lambda candidate: measure.better * candidate.area)

    def baseline(self, measure: Measure) -> Candidate:
        """Return the candidate that others are compared with: greedy, or else the first."""
        return self.candidates[measure][find_baseline([candidate.recipe for candidate in self.candidates[measure]])]

    @property
    def chosen(self) -> dict[Measure, tuple[Recipe, ...]]:
        """Measure -> the best candidate's recipe, with the alias 'Tuned'."""
        return {measure: (replace(self.best(measure).recipe, alias=TUNED),) for measure in self.candidates}

    def record(self) -> dict[str, Any]:
        """Return plain data for JSON."""
        chosen = {}
        for measure in self.candidates:
            lead, baseline = self.lead[measure].record(), self.baseline(measure).recipe
            against = {"against_greedy": lead} if baseline == GREEDY else {"against_first": lead}
            named = {} if baseline == GREEDY else {"baseline": baseline.name}
            chosen[measure.name] = self.best(measure).record() | against | named
        candidates = {m.name: [candidate.record() for candidate in listed] for m, listed in self.candidates.items()}
        about = {"folds": self.n_folds, "examples": self.examples, "rule": RULE}
        return about | {"chosen": chosen, "candidates": candidates}

    @classmethod
    def from_record(cls, record: Any) -> Tuning:
        """Return the tuning that `record` wrote."""
        fields: TuningRecord = convert_record(TuningRecord, record, "tuning")
        candidates: dict[Measure, tuple[Candidate, ...]] = {}
        lead: dict[Measure, Comparison] = {}
        for name, listed in fields["candidates"].items():
            measure = from_record("measure", MEASURES, name, Measure)
            decoders: Decoders = {Recipe: Recipe.from_record, Measure: lambda _, measure=measure: measure}  # type: ignore[misc]
            candidates[measure] = ()
            for candidate in listed:
                recipe = {key: value for key, value in candidate.items() if key not in ("method", "area", "folds")}
                parts = {key: candidate[key] for key in ("area", "folds") if key in candidate} | {"recipe": recipe}
                candidates[measure] += (convert_record(Candidate, parts, f"tuning.{name}", decoders),)
            chosen = fields["chosen"].get(name, {})
            compared = chosen.get("against_greedy", chosen.get("against_first"))
            compared = {"measure": name, **compared} if isinstance(compared, Mapping) else compared
            lead[measure] = convert_record(Comparison, compared, f"tuning.chosen.{name}", decoders)
        if not candidates or not all(candidates.values()):
            raise InputError("tuning has no candidates")
        return cls(fields["examples"], fields["folds"], candidates, lead)

    def __repr__(self) -> str:
        best = ", ".join(f"{m.name} {self.best(m).recipe.name} {self.best(m).area:.4f}" for m in self.candidates)
        return f"Tuning({best}; {self.examples:,} examples in {self.n_folds} folds)"


def find_baseline(recipes: Sequence[Recipe]) -> int:
    """Return the index of greedy, or else of the first."""
    return recipes.index(GREEDY) if GREEDY in recipes else 0


@dataclass(frozen=True)
class TaskInfo:
    """The examples of a run: their split, their number, and a hash of their tokens."""

    split: str
    examples: int
    prompts: str


@dataclass(frozen=True)
class Prompt:
    """A pair of prompts as the texts of their tokens, and the two answers."""

    clean: tuple[str, ...]
    corrupted: tuple[str, ...]
    correct: str
    incorrect: str


@dataclass(frozen=True)
class RunInfo:
    """Facts about a run.

    weights      a hash of the model's files, or of its weights in memory
    train, test  the scored and the evaluated examples
    bos          the token in front of every prompt, or None
    accuracy     of the model on the evaluated examples
    seconds      stage -> seconds. Scores that were found in the store count with the time that computing them took.
    versions     package -> version
    """

    model: str
    weights: str
    task: str
    train: TaskInfo
    test: TaskInfo
    seed: int
    device: str
    dtype: str
    threads: int
    bos: int | None
    accuracy: ModelAccuracy
    graph: Graph
    seconds: Mapping[str, float]
    versions: Mapping[str, str]

    def __post_init__(self) -> None:
        if not (0 <= self.accuracy.top <= 1 and 0 <= self.accuracy.beats <= 1):
            raise InputError(f"accuracies are shares, from 0 to 1, not {self.accuracy.top} and {self.accuracy.beats}")
        if min(self.train.examples, self.test.examples) < 1:
            raise InputError("a run needs at least one example to score and one to evaluate")


def describe_run(
    model: Model, train: Task, test: Task, accuracy: ModelAccuracy, seed: int, seconds: Mapping[str, float]
) -> RunInfo:
    """Return what is recorded about a run."""
    from ..runtime.engine import thread_count  # imports torch, which reading a result doesn't need

    return RunInfo(
        model=model.name,
        weights=model.content,
        task=test.name,
        train=TaskInfo(train.split, len(train), train.digest),
        test=TaskInfo(test.split, len(test), test.digest),
        seed=seed,
        device=model.transformer.device_names,
        dtype=str(model.transformer.dtype).removeprefix("torch."),
        threads=thread_count(),
        bos=model.bos,
        accuracy=accuracy,
        graph=model.graph,
        seconds=seconds,
        versions={"python": platform.python_version()} | {name: version(name) for name in VERSIONED_PACKAGES},
    )


def decode_prompts(examples: Sequence[Example], tokenizer: Any) -> tuple[Prompt, ...]:
    """Return the first examples as texts, at most `MAX_PROMPTS` and `MAX_TOKENS`. Without a tokenizer, as numbers."""
    lengths = np.cumsum([2 * example.length for example in examples[:MAX_PROMPTS]])
    examples = examples[: int(np.count_nonzero(lengths <= MAX_TOKENS))]
    tokens = {token for e in examples for token in (*e.clean, *e.corrupted, e.correct, e.incorrect)}
    text = {token: _token_text(token, tokenizer) for token in tokens}
    return tuple(
        Prompt(
            tuple(text[token] for token in example.clean),
            tuple(text[token] for token in example.corrupted),
            text[example.correct],
            text[example.incorrect],
        )
        for example in examples
    )


def _token_text(token: int, tokenizer: Any) -> str:
    """Return a token as it stands in a text, with its leading space."""
    if tokenizer is None:
        return str(token)
    try:
        piece = tokenizer.convert_ids_to_tokens(token)
        # Decoding a single token would drop the space in front of it.
        in_text = SENTENCEPIECE_SPACE in piece
        text = piece.replace(SENTENCEPIECE_SPACE, " ") if in_text else tokenizer.decode([token])
        text.encode("utf-8")
    except Exception:  # a custom tokenizer may raise anything, and these texts are only shown
        return f"<{token}>"
    return str(text)


@dataclass(frozen=True, eq=False)
class Discovery:
    """The result of a run, as `discover` returns it and as `read_result` reads it from a folder.

    run          facts about the run: model, examples, seed, accuracy, seconds, versions
    statistics   of every edge, by the bootstrap of the settings
    outcomes     one per measure and recipe
    learned      learner -> ranking, for recipes that have a learner
    tuning       how one more recipe was chosen by cross-validation on train. None without tuning.
    overlap      measure -> recipe name -> overlap of circuits over resamples of train, [size]. NaN where they are
                 empty.
    prompts      the first of the evaluated examples, as text
    attention    of the heads in exported circuits, on a few of the evaluated examples. None if there is none.
    load_scores  returns the scores of train. They are large, so those of a folder are read when `scores` is first used.
    """

    run: RunInfo
    settings: Settings
    statistics: EdgeStatistics
    outcomes: tuple[Outcome, ...]
    learned: Mapping[Learner, Ranking]
    tuning: Tuning | None
    overlap: Mapping[Measure, Mapping[str, FloatArray]]
    prompts: tuple[Prompt, ...]
    attention: Attention | None
    load_scores: Callable[[], EdgeScores]

    @cached_property
    def scores(self) -> EdgeScores:
        """The scores of train, [example, edge]."""
        return self.load_scores()

    @cached_property
    def mean_scores(self) -> FloatArray:
        """[edge] the mean over the examples of train, which circuits are selected by without a filter."""
        return self.scores.mean()

    @property
    def measures(self) -> tuple[Measure, ...]:
        """The measures that have outcomes."""
        return tuple(dict.fromkeys(outcome.measure for outcome in self.outcomes))

    def of(self, measure: Measure) -> tuple[Outcome, ...]:
        """Return the outcomes of one measure."""
        outcomes = tuple(outcome for outcome in self.outcomes if outcome.measure == measure)
        if not outcomes:
            known = ", ".join(map(repr, self.measures))
            raise InputError(f"no recipe was tried for {measure!r}; this run has {known}")
        return outcomes

    def best(self, measure: Measure) -> Outcome:
        """Return the outcome of the best area: the highest CPR, the lowest CMD. Ties go to the first."""
        return max(self.of(measure), key=lambda outcome: measure.better * outcome.area)

    def exported(self, measure: Measure) -> Outcome:
        """Return the outcome whose circuits are written as files.

        It is the last one that was chosen without the evaluated examples (a portfolio, a tuned recipe), or else the
        best on them.
        """
        return exported_outcome(self.of(measure), measure)

    def __repr__(self) -> str:
        names = ", ".join(f"{m.name} of {len(self.of(m))} recipes" for m in self.measures)
        return f"Discovery({self.run.model!r} on {self.run.task!r}: {names})"


def exported_outcome(outcomes: Sequence[Outcome], measure: Measure) -> Outcome:
    """Return the outcome whose circuits are written as files; see `Discovery.exported`."""
    candidates = [outcome for outcome in outcomes if outcome.measure == measure]
    chosen_before = [outcome for outcome in candidates if outcome.chosen_on]
    return chosen_before[-1] if chosen_before else max(candidates, key=lambda outcome: measure.better * outcome.area)
