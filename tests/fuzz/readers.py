"""Every public way in, and what holds of whatever comes out of it."""

from __future__ import annotations

import io
import json
import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from hypothesis import strategies as st

from edgewise import Circuit, EdgeScores, InputError, Ranking, read_result
from edgewise.report.viewer.view import view_of

from . import attacks, valid
from .inputs import ACCEPT, Input
from .watch import FailedError

Read = Callable[[Path, Input], Any]
# Larger ones aren't written again: a graph may be large without a large file.
ROUND_TRIP = 5000
LONGEST = 10_000


@dataclass(frozen=True)
class Reader:
    """A way in: the inputs that it is given, how it is read and judged, and its share of a large run."""

    name: str
    inputs: Callable[[], st.SearchStrategy[Input]]
    read: Read
    share: float
    small: int = 100


def naming(read: Read) -> Read:
    """What is refused names its file, or the folder, in words that fit a screen."""

    def named(folder: Path, given: Input) -> None:
        try:
            read(folder, given)
        except InputError as error:
            hold(str(folder) in str(error), f"a refusal names the file: {str(error)[:300]}")
            hold(
                len(str(error)) < LONGEST, f"a refusal fits a screen: {len(str(error)):,} characters {str(error)[:300]}"
            )
            raise

    return named


def hold(condition: bool, what: str) -> None:
    """What must hold of something that was accepted."""
    if not condition:
        raise FailedError(what, what.partition(":")[0])


def _same(one: Any, other: Any) -> bool:
    return json.dumps(one, sort_keys=True, default=list) == json.dumps(other, sort_keys=True, default=list)


def _is_finite(values: Any) -> bool:
    return bool(np.isfinite(np.asarray(values, np.float64)).all())


def read_edges(name: str) -> Read:
    """A circuit or scores from one file."""

    def read(folder: Path, given: Input) -> None:
        if given.read == "scores":
            _check_scores(EdgeScores.load(folder / name), folder, given, rows=1)
            return
        found = Circuit.load(folder / name)
        hold(found.mask.shape == (found.graph.n_edges,) and found.mask.dtype == bool, "a mask has one flag per edge")
        if found.graph.n_edges < ROUND_TRIP:
            for suffix in ("json", "pt", "npz"):
                found.save(folder / f"again.{suffix}")
                hold(Circuit.load(folder / f"again.{suffix}") == found, f"a circuit survives {suffix}")
        if given.verdict == ACCEPT:
            hold(found.n_edges == -(-valid.GRAPH.n_edges // 3), "the same circuit is read from the same file")

    return read


def _check_scores(found: EdgeScores, folder: Path, given: Input, rows: int) -> None:
    hold(found.values.shape == (found.n_examples, found.graph.n_edges), "scores are [example, edge]")
    hold(found.values.dtype.kind == "f" and _is_finite(found.values), "scores are finite")
    if found.graph.n_edges < ROUND_TRIP:
        found.save(folder / "again")
        again = EdgeScores.load(folder / "again")
        hold(again.graph == found.graph and np.array_equal(again.values, found.values), "scores survive their folder")
        hold(_same(dict(again.provenance), dict(found.provenance)), "what is said of scores survives")
    if given.verdict == ACCEPT:
        hold(
            np.array_equal(found.values[0].astype(np.float32), valid._values(rows)[0].astype(np.float32)),
            "the same scores",
        )


def read_scores(folder: Path, given: Input) -> None:
    """A score folder."""
    _check_scores(EdgeScores.load(folder), folder, given, rows=3)


def read_ranking(folder: Path, given: Input) -> None:
    """A ranking."""
    found = Ranking.load(folder)
    hold(found.value.shape == (found.graph.n_edges,) and _is_finite(found.value), "a ranking is finite")
    hold(type(found.signed) is bool, "a ranking is signed or not")
    if found.resampled is not None:
        hold(
            found.resampled.ndim == 2 and found.resampled.shape[1] == found.graph.n_edges,
            "resamples are [resample, edge]",
        )
        hold(_is_finite(found.resampled), "resamples are finite")
    found.save(folder / "again")
    again = Ranking.load(folder / "again")
    hold(
        again.digest == found.digest and _same(dict(again.origin), dict(found.origin)), "a ranking survives its folder"
    )


def read_results(folder: Path, given: Input) -> None:
    """A result folder, with its circuits."""
    found = read_result(folder)
    graph = found.run.graph
    for row in found.outcomes:
        hold(
            _is_finite(row.curve.values) and _is_finite(row.curve.full) and _is_finite(row.curve.empty),
            "curves are finite",
        )
        hold(row.curve.values.shape == (len(row.curve.shares), found.run.test.examples), "curves are [size, example]")
        hold(_is_finite(row.area) and _is_finite(row.curve.shares), "areas and shares are finite")
        hold(
            all(circuit.graph == graph for circuit in row.circuits),
            "circuits are of the run's graph",
        )
        counts = tuple(circuit.n_edges for circuit in row.circuits)
        hold(counts == row.curve.kept, "circuits have as many edges as their curve says")
    _strict(found.run.record())
    view = view_of([folder])
    hold(len(view.rows) == len(found.rows), "every curve is shown")
    hold(all(_is_finite(one.mean) and _is_finite(one.low) for one in view.runs), "scores that are shown are finite")


def read_studies(folder: Path, given: Input) -> None:
    """A study, with the tables that are made of it."""
    from edgewise.study import read_study

    found = read_study(folder)
    for cell in found.cells:
        for split in (cell.validation, cell.test):
            for repeats in split.values():
                for one in repeats:
                    hold(
                        all(_is_finite(curve.values) and _is_finite(curve.full) for curve in one.curves),
                        "curves are finite",
                    )
    _strict(found.plan.record())


def read_unit(folder: Path, given: Input) -> None:
    """A unit of a store: one that isn't whole is not found."""
    from edgewise.runtime.store import Store

    found = Store(folder).find("scores-1")
    if found is None:
        raise InputError("not found")
    for values in found.arrays.values():
        hold(not values.dtype.hasobject, "arrays hold no objects")
        values.tobytes()
    _strict(found.about)


def _strict(record: Any) -> None:
    """A record can be written as JSON that anybody reads."""
    try:
        text = json.dumps(record, allow_nan=False)
        text.encode("utf-8")
    except ValueError as error:
        raise FailedError(f"a record isn't JSON: {error}", "a record isn't JSON") from error


@contextmanager
def _small_models() -> Iterator[None]:
    """The benchmark's models, but small."""
    from edgewise.results import submission

    before = dict(submission.MODELS)
    submission.MODELS.update(gpt2=valid.GRAPH, gemma2=valid.GRAPH)
    try:
        yield
    finally:
        submission.MODELS.update(before)


def read_submission(folder: Path, given: Input) -> None:
    """The tree of a submission."""
    from edgewise.results import check_submission

    with _small_models():
        found = check_submission(folder)
    json.dumps(found.record(), allow_nan=False)
    if not found.accepted:
        raise InputError("not accepted")


def read_task(folder: Path, given: Input) -> None:
    """A task file, for the embedded model."""
    from edgewise import load_task

    _check_task(load_task(str(folder / given.read), valid.demo(), "train"))


def read_copy(folder: Path, given: Input) -> None:
    """A local copy of a data set."""
    from edgewise import load_task

    where = folder / "train.jsonl" if given.read == "file" else folder
    _check_task(load_task(f"mib/ioi={where}", valid.demo(), "train"))


def _check_task(found: Any) -> None:
    hold(len(found) > 0, "a task has examples")
    for example in found.examples:
        tokens = (*example.clean, *example.corrupted, example.correct, example.incorrect)
        hold(all(type(token) is int and 0 <= token < attacks.VOCABULARY for token in tokens), "tokens are the model's")
        hold(len(example.clean) == len(example.corrupted), "prompts are equally long")
    hold(len(found.digest) == 64, "a task has a digest")


def read_model(name: str) -> Read:
    """A model's folder, or its only file."""

    def read(folder: Path, given: Input) -> None:
        from edgewise.models import inspect_model, load_model

        os.environ["EDGEWISE_CACHE"] = str(folder.parent / "cache")
        if given.read == "inspect":
            facts = inspect_model(folder / name)
            hold(facts.parameters > 0 and facts.graph.n_edges > 0, "a model has parameters")
            return
        found = load_model(str(folder / name))
        hold(found.graph.n_edges > 0 and type(found.vocabulary) is int, "a model has a graph")
        hold(found.tokenizer is None or found.bos is None or 0 <= found.bos < found.vocabulary, "BOS is a token")

    return read


def run_command(folder: Path, given: Input) -> None:
    """A command in this process: exit code 0 or 2, a line for what is refused, nothing that steers a terminal."""
    kind, *words = given.read.split()
    where = folder / kind if kind.startswith("circuit.") else folder
    beside = folder.parent
    more = {
        "select": ("--edges", "10"),
        "convert": (str(beside / "converted.pt"), "--overwrite"),
        "view": ("--no-open", "--overwrite", "--out", str(beside / "view.html")),
        "export": ("--overwrite", "--out", str(beside / "circuit.graphml")),
    }.get(words[0], ())
    with _small_models():
        code, out, err = _run([words[0], str(where), *more, *words[1:]])
    hold(
        code in ((0, 1, 2) if words[0] == "check" else (0, 2)), f"a command ends with 0 or 2, not {code}: {err[-500:]}"
    )
    for shown in (out, err):
        odd = sorted({mark for mark in shown if mark != "\n" and (ord(mark) < 32 or 127 <= ord(mark) < 160)})
        hold(not odd, f"output holds control characters {odd}")
    hold("Traceback" not in err, "a traceback was shown")
    if code == 2:
        hold(err.startswith("error: "), f"what is refused is said: {err[:200]}")
        raise InputError(err)
    if words[-1] == "--json":
        json.loads(out, parse_constant=_refuse_constant)


def _refuse_constant(name: str) -> None:
    raise FailedError(f"{name} in JSON output", "NaN in JSON output")


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


def tasks() -> st.SearchStrategy[Input]:
    """Task files of both kinds."""
    return st.one_of(attacks.jsonl(), attacks.table())


READERS: dict[str, Reader] = {
    reader.name: reader
    for reader in (
        Reader("eap-json", attacks.eap_json, naming(read_edges("circuit.json")), 0.14, 150),
        Reader("eap-pt", attacks.eap_pt, naming(read_edges("circuit.pt")), 0.1, 120),
        Reader("packed", attacks.packed, naming(read_edges("circuit.npz")), 0.05, 100),
        Reader("scores", attacks.scores, naming(read_scores), 0.12, 120),
        Reader("ranking", attacks.ranking, naming(read_ranking), 0.1, 100),
        Reader("result", attacks.result, naming(read_results), 0.13, 150),
        Reader("study", attacks.study, naming(read_studies), 0.07, 80),
        Reader("unit", attacks.unit, read_unit, 0.08, 80),
        Reader("submission", attacks.submission, read_submission, 0.05, 60),
        Reader("task", tasks, naming(read_task), 0.08, 120),
        Reader("mib", attacks.mib, naming(read_copy), 0.03, 50),
        Reader("command", attacks.command, run_command, 0.03, 20),
        Reader("model", attacks.model, naming(read_model("")), 0.015, 20),
        *([Reader("gguf", attacks.gguf, naming(read_model("tiny.gguf")), 0.005, 10)] if valid.HAS_GGUF else []),
    )
}
VALID: dict[str, Callable[[], Input]] = {
    "eap-json": lambda: Input({"circuit.json": valid.circuit()["circuit.json"]}, "as it is", ACCEPT, "circuit"),
    "eap-pt": lambda: Input({"circuit.pt": valid.circuit()["circuit.pt"]}, "as it is", ACCEPT, "scores"),
    "packed": lambda: Input({"circuit.npz": valid.circuit()["circuit.npz"]}, "as it is", ACCEPT, "circuit"),
    "scores": lambda: Input(valid.scores(), "as it is", ACCEPT),
    "ranking": lambda: Input(valid.ranking(), "as it is", ACCEPT),
    "result": lambda: Input(valid.result(), "as it is", ACCEPT),
    "study": lambda: Input(valid.study(), "as it is", ACCEPT),
    "unit": lambda: Input(valid.unit(), "as it is", ACCEPT),
    "submission": lambda: Input(valid.submission(), "as it is", ACCEPT),
    "task": lambda: Input({"task.csv": attacks._csv_text(attacks._csv("text"))}, "as it is", ACCEPT, "task.csv"),
    "mib": lambda: Input({"train.jsonl": attacks._lines(valid.mib_rows())}, "as it is", ACCEPT, "folder"),
    "command": lambda: Input(valid.result(), "as it is", ACCEPT, "result report"),
    "model": lambda: Input(valid.model(), "as it is", ACCEPT, "load"),
    "gguf": lambda: Input(valid.gguf(), "as it is", ACCEPT, "load"),
}


def warm_up(name: str, folder: Path) -> None:
    """Read the valid input once, without watch: what is imported on the way counts for nobody."""
    given = VALID[name]()
    given.write(folder)
    READERS[name].read(folder, given)
