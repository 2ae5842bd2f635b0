"""The result of tuning: candidates, their areas on held-out examples, and the best one. Needs no torch."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypedDict

from ..errors import InputError
from ..evaluate import MEASURES, Comparison, Measure
from ..io.records import Decoders, convert_record
from ..method import from_record
from .recipe import GREEDY, TUNED, Recipe

RULE = "the best area of the curve over all held-out examples; ties go to the first, which is the simpler"


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
