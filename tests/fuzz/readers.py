"""Every public reader, and the laws that hold for everything it accepts."""

from __future__ import annotations

import io
import json
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from edgewise import Circuit, EdgeScores, InputError, Ranking, load_task, read_result
from edgewise.evaluate import FAITHFULNESS, MEASURES
from edgewise.graph import BaseGraph, SpanGraph
from edgewise.report.viewer.view import view_of

from . import attacks, valid
from .inputs import ACCEPT, Input
from .watch import FailedError

Read = Callable[[Path, Input], Any]
# Larger graphs aren't written again: a small file may have a large graph.
MAX_EDGES_TO_SAVE = 5000
MAX_MESSAGE = 10_000
VOCABULARY = 285  # of the embedded model


@dataclass(frozen=True)
class Reader:
    """A reader.

    files   the files of a valid input
    inputs  valid, changed and hostile inputs
    read    reads one, and checks what it accepts
    count   how many inputs `make test` reads
    choice  `Input.read` of the valid input
    """

    files: Callable[[], Mapping[str, bytes]]
    inputs: Callable[[], st.SearchStrategy[Input]]
    read: Read
    count: int
    choice: str = ""


def naming(read: Read) -> Read:
    """Check that errors name the file or the folder, and aren't endless."""

    def named(folder: Path, given: Input) -> None:
        try:
            read(folder, given)
        except InputError as error:
            check(str(folder) in str(error), f"an error names the file: {str(error)[:300]}")
            check(len(str(error)) < MAX_MESSAGE, f"an error fits a screen: {str(error)[:300]}")
            raise

    return named


def check(condition: bool, law: str) -> None:
    """Raise FailedError if a law doesn't hold for what a reader accepted."""
    if not condition:
        raise FailedError(law)


def _is_finite(*values: Any) -> bool:
    return all(np.isfinite(np.asarray(value, np.float64)).all() for value in values)


def _is_same(first: Any, second: Any) -> bool:
    return json.dumps(first, sort_keys=True, default=list) == json.dumps(second, sort_keys=True, default=list)


def _check_json(record: Any) -> None:
    try:
        json.dumps(record, allow_nan=False).encode("utf-8")
    except ValueError as error:
        raise FailedError("a record isn't JSON") from error


def read_edges(name: str, graph: BaseGraph) -> Read:
    """A circuit or scores in one file."""

    def read(folder: Path, given: Input) -> None:
        if given.read == "scores":
            _check_scores(EdgeScores.load(folder / name), folder, given, 1, graph)
            return
        circuit = Circuit.load(folder / name)
        check(circuit.mask.shape == (circuit.graph.n_edges,), "a mask has one flag per edge")
        if circuit.graph.n_edges < MAX_EDGES_TO_SAVE:
            for suffix in ("npz",) if isinstance(circuit.graph, SpanGraph) else ("json", "pt", "npz"):
                circuit.save(folder / f"again.{suffix}")
                check(Circuit.load(folder / f"again.{suffix}") == circuit, f"save then load is the identity: {suffix}")
        if given.verdict == ACCEPT:
            check(
                circuit.graph == graph and circuit.n_edges == -(-graph.n_edges // 3), "a valid file gives its circuit"
            )

    return read


def _check_scores(scores: EdgeScores, folder: Path, given: Input, rows: int, graph: BaseGraph) -> None:
    check(scores.values.shape == (scores.n_examples, scores.graph.n_edges), "scores are [example, edge]")
    check(scores.values.dtype.kind == "f" and _is_finite(scores.values), "scores are finite")
    if scores.graph.n_edges < MAX_EDGES_TO_SAVE:
        scores.save(folder / "again")
        again = EdgeScores.load(folder / "again")
        check(np.array_equal(again.values, scores.values), "save then load is the identity")
        check(_is_same(dict(again.provenance), dict(scores.provenance)), "provenance survives save and load")
    if given.verdict == ACCEPT:
        expected = valid._values(rows, graph)[0].astype(np.float32)
        check(np.array_equal(scores.values[0].astype(np.float32), expected), "a valid file gives its scores")


def read_scores(folder: Path, given: Input) -> None:
    """A score folder."""
    _check_scores(EdgeScores.load(folder), folder, given, 3, valid.GRAPH)


def read_ranking(folder: Path, given: Input) -> None:
    """A ranking."""
    ranking = Ranking.load(folder)
    check(ranking.value.shape == (ranking.graph.n_edges,) and _is_finite(ranking.value), "a ranking is finite")
    if ranking.resampled is not None:
        check(ranking.resampled.shape[1:] == ranking.value.shape, "resamples are [resample, edge]")
        check(_is_finite(ranking.resampled), "resamples are finite")
    ranking.save(folder / "again")
    again = Ranking.load(folder / "again")
    check(again.digest == ranking.digest, "save then load is the identity")
    check(_is_same(dict(again.origin), dict(ranking.origin)), "the origin survives save and load")


def read_results(folder: Path, given: Input) -> None:
    """A result folder with its circuits, and its view."""
    result = read_result(folder)
    methods = {type(outcome.measure) for outcome in result.outcomes} | {type(result.settings.faithfulness)}
    if not methods <= {*MEASURES.values(), *FAITHFULNESS.values()}:
        return  # custom ones are placeholders, from which nothing can be computed
    for outcome in result.outcomes:
        curve = outcome.curve
        check(_is_finite(curve.values, curve.full, curve.empty, outcome.area, curve.shares), "curves are finite")
        check(curve.values.shape == (len(curve.shares), result.run.test.examples), "curves are [size, example]")
        check(all(circuit.graph == result.run.graph for circuit in outcome.circuits), "circuits have the run's graph")
        check(tuple(c.n_edges for c in outcome.circuits) == curve.n_kept, "circuits have their curve's number of edges")
    view = view_of([folder])
    check(len(view.rows) == len(result.outcomes), "every curve is shown")
    check(all(_is_finite(run.mean, run.low) for run in view.runs), "scores that are shown are finite")


def read_studies(folder: Path, given: Input) -> None:
    """A study folder."""
    from edgewise.study import read_study

    study = read_study(folder)
    for cell in study.cells:
        repeats = [one for split in (cell.validation, cell.test) for many in split.values() for one in many]
        check(all(_is_finite(c.values, c.full) for one in repeats for c in one.curves), "curves are finite")
    _check_json(study.plan.record())


def read_unit(folder: Path, given: Input) -> None:
    """A unit of a store: a damaged one is not found."""
    from edgewise.runtime.store import Store

    unit = Store(folder).find("scores-1")
    if unit is None:
        raise InputError("not found")
    for values in unit.arrays.values():
        check(not values.dtype.hasobject, "arrays hold no objects")
        values.tobytes()
    _check_json(unit.about)


@contextmanager
def _small_models() -> Iterator[None]:
    """Give the benchmark's models small graphs."""
    from edgewise.results import submission

    before = dict(submission.MODELS)
    submission.MODELS.update(gpt2=valid.GRAPH, gemma2=valid.GRAPH)
    try:
        yield
    finally:
        submission.MODELS.update(before)


def read_submission(folder: Path, given: Input) -> None:
    """The folder of a submission."""
    from edgewise.results import check_submission

    with _small_models():
        checked = check_submission(folder)
    _check_json(checked.record())
    if not checked.accepted:
        raise InputError("not accepted")


def read_task(folder: Path, given: Input) -> None:
    """A task file, or a local copy of a data set, for the embedded model."""
    names = {"file": f"mib/ioi={folder / 'train.jsonl'}", "folder": f"mib/ioi={folder}"}
    task = load_task(names.get(given.read, str(folder / given.read)), valid.demo(), "train")
    check(len(task) > 0, "a task has examples")
    for example in task.examples:
        tokens = (*example.clean, *example.corrupted, *example.answers)
        check(all(type(token) is int and 0 <= token < VOCABULARY for token in tokens), "tokens are the model's")
        check(len(example.clean) == len(example.corrupted), "prompts are equally long")


def read_model(name: str) -> Read:
    """The folder of a model, or its only file."""

    def read(folder: Path, given: Input) -> None:
        from edgewise.models import inspect_model, load_model

        if given.read == "inspect":
            facts = inspect_model(folder / name)
            check(facts.parameters > 0 and facts.graph.n_edges > 0, "a model has parameters")
            return
        model = load_model(str(folder / name))
        check(model.graph.n_edges > 0 and type(model.vocabulary) is int, "a model has a graph")
        check(model.tokenizer is None or model.bos is None or 0 <= model.bos < model.vocabulary, "BOS is a token")

    return read


def run_command(folder: Path, given: Input) -> None:
    """A command in this process: exit code 0 or 2, errors in one line, no control characters."""
    kind, *words = given.read.split()
    more = {
        "select": ("--edges", "10"),
        "convert": (str(folder.parent / "converted.pt"), "--overwrite"),
        "view": ("--no-open", "--overwrite", "--out", str(folder.parent / "view.html")),
        "export": ("--overwrite", "--out", str(folder.parent / "circuit.graphml")),
    }.get(words[0], ())
    path = folder / kind if kind.startswith("circuit.") else folder
    with _small_models():
        code, out, err = _run([words[0], str(path), *more, *words[1:]])
    check(code in ((0, 1, 2) if words[0] == "check" else (0, 2)), f"a command ends with 0 or 2: {code}, {err[-500:]}")
    for shown in (out, err):
        odd = sorted({mark for mark in shown if mark != "\n" and (ord(mark) < 32 or 127 <= ord(mark) < 160)})
        check(not odd, f"output has no control characters: {odd}")
    check("Traceback" not in err, "no traceback is shown")
    if code == 2:
        check(err.startswith("error: "), f"an error says so: {err[:200]}")
        raise InputError(err)
    if words[-1] == "--json":
        json.loads(out, parse_constant=lambda name: check(False, f"JSON output is finite: {name}"))


def _run(words: list[str]) -> tuple[int, str, str]:
    from edgewise.cli import main

    # As a pipe: characters that can't be encoded fail here as they would there.
    streams = [io.TextIOWrapper(io.BytesIO(), encoding="utf-8", write_through=True) for _ in range(2)]
    before = sys.argv, sys.stdout, sys.stderr
    sys.argv, sys.stdout, sys.stderr = ["edgewise", *words], *streams
    code: Any = 0
    try:
        main()
    except SystemExit as end:
        code = end.code or 0
    finally:
        sys.argv, sys.stdout, sys.stderr = before
    out, err = (stream.buffer.getvalue().decode("utf-8") for stream in streams)  # type: ignore[attr-defined]
    return code, out, err


def _circuit(suffix: str, count: int, choice: str, graph: BaseGraph = valid.GRAPH) -> Reader:
    name = f"circuit.{suffix}"
    return Reader(
        lambda: {name: valid.circuit(graph)[name]},
        lambda: attacks.circuit(suffix, graph),
        naming(read_edges(name, graph)),
        count,
        choice,
    )


def _folder(files: Callable[[], Mapping[str, bytes]], read: Read, count: int) -> Reader:
    return Reader(files, lambda: attacks.attack(files()), naming(read), count)


READERS: dict[str, Reader] = {
    "eap-json": _circuit("json", 50, "circuit"),
    "eap-pt": _circuit("pt", 40, "scores"),
    "npz": _circuit("npz", 33, "circuit"),
    "node-json": _circuit("json", 25, "circuit", valid.NODES),
    "node-pt": _circuit("pt", 20, "scores", valid.NODES),
    "neuron-json": _circuit("json", 25, "circuit", valid.NEURONS),
    "neuron-pt": _circuit("pt", 20, "scores", valid.NEURONS),
    "span-npz": _circuit("npz", 20, "circuit", valid.SPANS),
    "scores": _folder(valid.scores, read_scores, 40),
    "ranking": _folder(valid.ranking, read_ranking, 33),
    "result": _folder(valid.result, read_results, 50),
    "study": Reader(valid.study, attacks.study, naming(read_studies), 26),
    "unit": Reader(valid.unit, attacks.unit, read_unit, 26),
    "submission": Reader(valid.submission, attacks.submission, read_submission, 20),
    "task": Reader(
        lambda: {"task.csv": attacks.table_of(valid.text_rows())}, attacks.tasks, naming(read_task), 40, "task.csv"
    ),
    "mib": Reader(
        lambda: {"train.jsonl": attacks.lines_of(valid.mib_rows())}, attacks.mib, naming(read_task), 16, "folder"
    ),
    "command": Reader(valid.result, attacks.command, run_command, 6, "result report"),
    "model": Reader(valid.model, attacks.model, naming(read_model("")), 6, "load"),
}
if valid.HAS_GGUF:
    READERS["gguf"] = Reader(valid.gguf, attacks.gguf, naming(read_model("tiny.gguf")), 4, "load")


def warm_up(reader: Reader, folder: Path) -> None:
    """Read the valid input once, unwatched, so that imports count for no input."""
    given = Input(reader.files(), verdict=ACCEPT, read=reader.choice)
    given.write(folder)
    reader.read(folder, given)
