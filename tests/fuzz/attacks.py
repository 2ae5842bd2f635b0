"""What is done to the inputs of each reader: strategies of `Input`, from valid ones."""

from __future__ import annotations

import csv
import hashlib
import io
import json
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from typing import Any

import numpy as np
from hypothesis import strategies as st

from . import valid
from .arrays import CODE, archive, bomb, hostile_pickle, member, npy_of, zip_of
from .inputs import ACCEPT, REFUSE, Folder, Input, Link, Pipe, Sparse
from .mutate import (
    VALUES,
    Mutated,
    Schema,
    Tree,
    bytes_of,
    is_bool,
    is_count,
    is_int,
    is_list,
    is_number,
    is_object,
    is_positive,
    is_text,
    one_of,
    or_null,
    text_of_json,
)

Draw = Callable[[st.SearchStrategy], Any]
GIANT = 3 * 10**9
EDGES = valid.GRAPH.n_edges
SHAPE = {"n_layers": one_of(2), "n_heads": one_of(2), "d_model": is_positive, "parallel": one_of(False)}
GIANTS = tuple(Sparse(GIANT, head) for head in (b"", b"{", b"\x93NUMPY\x01\x00", b"PK\x03\x04"))
SMALL = (".json", ".jsonl", ".csv", ".pt", ".npz", "scores.npy", "ranking.npy")
ENTRIES = (
    None,
    b"",
    Folder(),
    Pipe(),
    *(Link(target) for target in ("itself", ".", "..", "nowhere", "/dev/zero", "/dev/null", "/dev/stdin")),
    *GIANTS,
)


def fields(*names: str, of: Mapping[str, Any]) -> dict[tuple[Any, ...], Any]:
    """Kinds of the fields below a path."""
    return {(*names, name): kind for name, kind in of.items()}


@cache
def tree(kind: str, name: str) -> Tree:
    """The JSON of a valid input's file."""
    return Tree.of(json.loads(getattr(valid, kind)()[name]))


@cache
def array(kind: str, name: str) -> np.ndarray:
    """The npy of a valid input's file."""
    return np.load(io.BytesIO(getattr(valid, kind)()[name]))


def changed(given: Input, name: str, found: Mutated, words: str = "") -> Input:
    """An input with one file mutated."""
    done = given.with_file(name, found.data)
    return replace(done, words=f"{words}{found.words} in {name}", verdict=found.verdict)


@st.composite
def entry_of(draw: Draw, given: Input, needed: tuple[str, ...]) -> Input:
    """A file is gone, or is no file."""
    name = draw(st.sampled_from(needed))
    # Arrays and weights may be larger than memory: they are mapped, or read piece by piece.
    new = draw(st.sampled_from(ENTRIES if name.endswith(SMALL) else [one for one in ENTRIES if one not in GIANTS]))
    if isinstance(new, Link) and new.target == "itself":
        new = Link(name.rpartition("/")[2])
    return replace(
        given.with_file(name, new), words=f"entry {type(new).__name__}: {new!r:.60} for {name}", verdict=REFUSE
    )


# --- EAP-IG files

_EAP_KINDS = {
    **fields(
        "cfg",
        of={"n_layers": is_positive, "n_heads": is_positive, "d_model": is_positive, "parallel_attn_mlp": is_bool},
    ),
    ("cfg",): is_object,
    ("nodes",): is_object,
    ("edges",): is_object,
    ("edges", "*"): is_object,
    ("nodes", "*"): is_object,
    ("edges", "*", "in_graph"): is_bool,
    ("nodes", "*", "in_graph"): is_bool,
    (): is_object,
}
_EAP_NEEDED = frozenset(
    {
        ("cfg",),
        ("nodes",),
        ("edges",),
        ("cfg", "n_layers"),
        ("cfg", "n_heads"),
        ("cfg", "d_model"),
        ("edges", "*", "in_graph"),
    }
)
EAP = {
    "circuit": Schema(_EAP_KINDS | {("edges", "*", "score"): or_null(is_number)}, _EAP_NEEDED),
    "scores": Schema(
        _EAP_KINDS | {("edges", "*", "score"): is_number}, _EAP_NEEDED | {("edges", "*"), ("edges", "*", "score")}
    ),
}


@st.composite
def eap_json(draw: Draw) -> Input:
    """A circuit or scores as json."""
    read = draw(st.sampled_from(sorted(EAP)))
    given = Input({"circuit.json": valid.circuit()["circuit.json"]}, "as it is", ACCEPT, read)
    if draw(st.integers(0, 15)) == 0:
        return draw(entry_of(given, ("circuit.json",)))
    if draw(st.integers(0, 15)) == 0:
        layers, heads = draw(
            st.sampled_from(((20000, 1), (1, 20000), (10**9, 1), (300, 64), (2, 10**6), (10**30, 10**30)))
        )
        cfg = {"n_layers": layers, "n_heads": heads, "d_model": 8, "parallel_attn_mlp": False}
        text = json.dumps({"cfg": cfg, "nodes": {}, "edges": {}}).encode()
        return replace(given.with_file("circuit.json", text), words=f"small: {cfg} without edges", verdict=None)
    return changed(given, "circuit.json", draw(text_of_json(tree("circuit", "circuit.json"), EAP[read])))


PACKED = Schema(
    {path: kind for path, kind in _EAP_KINDS.items() if path[:1] not in (("nodes",), ("edges",))}
    | {("format",): lambda value: value == "edgewise-circuit", ("version",): lambda value: value == 1},
    frozenset({("cfg",), ("cfg", "n_layers"), ("cfg", "n_heads"), ("cfg", "d_model"), ("format",), ("version",)}),
)


@cache
def _packed_members() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(valid.circuit()["circuit.npz"])) as held:
        return {name: held.read(name) for name in held.namelist()}


@st.composite
def packed(draw: Draw) -> Input:
    """A circuit as npz."""
    given = Input({"circuit.npz": valid.circuit()["circuit.npz"]}, "as it is", ACCEPT, "circuit")
    way, members = draw(st.sampled_from(("npz", "npz", "about", "about", "bomb", "entry"))), _packed_members()
    if way == "entry":
        return draw(entry_of(given, ("circuit.npz",)))
    arrays = {name: np.load(io.BytesIO(data)) for name, data in members.items()}
    if way == "about":
        found = draw(text_of_json(Tree.of(json.loads(arrays["about.npy"].tobytes())), PACKED))
        parts = arrays | {"about.npy": np.frombuffer(found.data, np.uint8)}
        held = io.BytesIO()
        np.savez(held, **{name.removesuffix(".npy"): one for name, one in parts.items()})
        return changed(given, "circuit.npz", replace(found, data=held.getvalue()), "about: ")
    if way == "npz":

        def change(draw: Draw, name: str) -> Mutated:
            found = draw(npy_of(arrays[name], arrays[name].dtype.kind))
            # Other bytes of JSON may be other JSON, and other bits another circuit.
            return replace(found, verdict=None) if name != "score.npy" and found.verdict == ACCEPT else found

        return changed(given, "circuit.npz", draw(zip_of(members, change, tuple(members))))
    name = draw(st.sampled_from(sorted(members)))
    data = bomb(members, name, members[name], 700, draw(st.sampled_from((None, 100, len(members[name])))))
    return changed(given, "circuit.npz", Mutated(data, f"npz bomb: {name}", REFUSE))


@cache
def _pt_members() -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(valid.circuit()["circuit.pt"])) as held:
        return {name: held.read(name) for name in held.namelist()}


@cache
def _pt_object() -> dict[str, Any]:
    import torch

    return torch.load(io.BytesIO(valid.circuit()["circuit.pt"]), weights_only=True)


def _saved(data: Any, legacy: bool = False) -> bytes:
    import torch

    file = io.BytesIO()
    torch.save(data, file, _use_new_zipfile_serialization=not legacy)
    return file.getvalue()


@st.composite
def eap_pt(draw: Draw) -> Input:
    """A circuit or scores as pt."""
    read = draw(st.sampled_from(sorted(EAP)))
    given = Input({"circuit.pt": valid.circuit()["circuit.pt"]}, "as it is", ACCEPT, read)
    way = draw(
        st.sampled_from(
            ("value", "value", "tensor", "tensor", "tensor", "zip", "zip", "pickle", "legacy", "bomb", "entry", "bytes")
        )
    )
    if way == "entry":
        return draw(entry_of(given, ("circuit.pt",)))
    return changed(given, "circuit.pt", _pt(draw, way, read))


def _pt(draw: Draw, way: str, read: str) -> Mutated:
    members = _pt_members()
    pickled = next(name for name in members if name.endswith("data.pkl"))
    if way == "value":
        return _pt_value(draw)
    if way == "tensor":
        return _pt_tensor(draw, read)
    if way == "zip":
        needed = [name for name in members if name.endswith("data.pkl") or "/data/" in name]
        return draw(zip_of(members, lambda draw, name: draw(bytes_of(members[name])), needed))
    if way == "pickle":
        hostile = hostile_pickle(draw)
        bare = draw(st.booleans())
        packed = hostile if bare else archive([member(n, hostile if n == pickled else d) for n, d in members.items()])
        return Mutated(packed, f"pt pickle: {'bare' if bare else 'inside'} {hostile[:60]!r}", REFUSE)
    if way == "legacy":
        whole = _saved(_pt_object(), legacy=True)
        found = draw(bytes_of(whole))
        return replace(found, words=f"pt legacy: {found.words}")
    if way == "bomb":
        name = draw(st.sampled_from(sorted(members)))
        claimed = draw(st.sampled_from((None, 100, len(members[name]))))
        return Mutated(bomb(members, name, members[name], 700, claimed), f"pt bomb: {name}, says {claimed}", None)
    return draw(bytes_of(valid.circuit()["circuit.pt"]))


def _pt_value(draw: Draw) -> Mutated:
    data = dict(_pt_object())
    key = draw(st.sampled_from((*data, "cfg", "cfg", "cfg")))
    raw = draw(st.sampled_from(VALUES))
    words = f"pt value: {key} = {raw.text[:60]}"
    if key == "cfg":
        name = draw(st.sampled_from(sorted(data["cfg"])))
        data["cfg"] = data["cfg"] | {name: raw.value}
        kind = is_bool if name == "parallel_attn_mlp" else is_positive
        return Mutated(_saved(data), f"{words} as {name}", None if kind(raw.value) else REFUSE)
    same = type(data[key]) is type(raw.value) and raw.value == data[key]
    data[key] = raw.value
    verdict = None if key == "edgewise" or same else REFUSE
    return Mutated(_saved(data), words, verdict)


def _pt_tensor(draw: Draw, read: str) -> Mutated:
    import torch

    data = dict(_pt_object())
    key = draw(st.sampled_from(("edges_scores", "edges_in_graph", "nodes_in_graph")))
    tensor = data[key]
    refused = {
        "wide": lambda: torch.zeros(1).expand(10**5, 10**5),
        "wide alike": lambda: torch.zeros(1, dtype=tensor.dtype).expand(*(n * 10**4 for n in tensor.shape)),
        "longer": lambda: torch.cat([tensor, tensor[:1]]),
        "shorter": lambda: tensor[:-1].clone(),
        "flat": lambda: tensor.reshape(-1)[:-1].clone(),
        "deeper": lambda: tensor[None],
        "number": lambda: torch.tensor(1.0),
        "nothing": lambda: torch.zeros(0),
        "complex": lambda: tensor.to(torch.complex64),
        "sparse": lambda: tensor.to_sparse(),
        "csr": lambda: torch.eye(*tensor.shape[:1]).to_sparse_csr(),
        "meta": lambda: torch.empty(tensor.shape, dtype=tensor.dtype, device="meta"),
        "list": lambda: tensor.tolist(),
        "array": lambda: tensor.numpy(),
        "quantised": lambda: torch.quantize_per_tensor(tensor.float(), 0.1, 0, torch.qint8),
        "module": lambda: torch.nn.Linear(2, 2),
        "twos": lambda: torch.full(tensor.shape, 2 if key == "edges_in_graph" else torch.nan),
        "text": lambda: "x",
    }
    either = {
        "half": lambda: tensor.to(torch.float16),
        "brain": lambda: tensor.to(torch.bfloat16),
        "double": lambda: tensor.to(torch.float64),
        "whole": lambda: tensor.to(torch.int64),
        "bytes": lambda: tensor.to(torch.uint8),
        "flags": lambda: tensor != 0,
        "stretched": lambda: torch.zeros((1,) * tensor.ndim, dtype=tensor.dtype).expand(tensor.shape),
        "parameter": lambda: torch.nn.Parameter(tensor.float()),
        "float8": lambda: tensor.float().to(torch.float8_e4m3fn),
        "view": lambda: torch.cat([tensor.reshape(-1), tensor.reshape(-1)])[: tensor.numel()].reshape(tensor.shape),
        "nan": lambda: torch.full(tensor.shape, torch.nan),
    }
    way = draw(st.sampled_from((*refused, *either, "turned", "full")))
    if way == "turned":
        data[key] = tensor.T.contiguous().T if tensor.ndim == 2 else tensor
    elif way == "full":
        data[key] = torch.ones_like(tensor)
    else:
        data[key] = (refused | either)[way]()
    verdict = REFUSE if way in refused else ACCEPT if way == "turned" else None
    if way == "twos" and (key == "nodes_in_graph" or (key == "edges_scores" and read == "circuit")):
        verdict = None
    if way in ("whole", "bytes", "flags") and key == "edges_scores":
        verdict = REFUSE
    if way == "full" and key == "edges_in_graph":
        verdict = REFUSE  # pairs that are no edge are marked
    if way == "nan" and key != "nodes_in_graph" and not (key == "edges_scores" and read == "circuit"):
        verdict = REFUSE
    return Mutated(_saved(data), f"pt tensor: {key} {way}", verdict)


# --- score folders, rankings, units

_FOLDER = {(): is_object, ("graph",): is_object, **fields("graph", of=SHAPE)}
_GRAPH_NEEDED = {
    ("format",),
    ("version",),
    ("graph",),
    ("graph", "n_layers"),
    ("graph", "n_heads"),
    ("graph", "d_model"),
}
SCORES = Schema(
    _FOLDER
    | fields(
        of={"format": one_of("edgewise-scores"), "version": one_of(1), "examples": one_of(3), "provenance": is_object}
    ),
    frozenset(_GRAPH_NEEDED),
)
RANKING = Schema(
    _FOLDER
    | fields(
        of={"format": one_of("edgewise-ranking"), "version": one_of(1), "signed": one_of(True), "origin": is_object}
    ),
    frozenset(_GRAPH_NEEDED | {("signed",), ("origin",)}),
)


@st.composite
def scores(draw: Draw) -> Input:
    """A score folder."""
    given = Input(valid.scores(), "as it is", ACCEPT)
    way = draw(st.sampled_from(("json", "json", "npy", "npy", "entry")))
    if way == "entry":
        return draw(entry_of(given, ("scores.json", "scores.npy")))
    if way == "json":
        return changed(given, "scores.json", draw(text_of_json(tree("scores", "scores.json"), SCORES)))
    return changed(given, "scores.npy", draw(npy_of(array("scores", "scores.npy"))))


@st.composite
def ranking(draw: Draw) -> Input:
    """A ranking's folder."""
    given = Input(valid.ranking(), "as it is", ACCEPT)
    way = draw(st.sampled_from(("json", "json", "npy", "npy", "entry")))
    if way == "entry":
        return draw(entry_of(given, ("ranking.json", "ranking.npy")))
    if way == "json":
        return changed(given, "ranking.json", draw(text_of_json(tree("ranking", "ranking.json"), RANKING)))
    return changed(given, "ranking.npy", draw(npy_of(array("ranking", "ranking.npy"), fixed=False)))


UNIT = Schema(
    {
        (): is_object,
        ("format",): one_of("edgewise-unit"),
        ("version",): one_of(2),
        ("arrays",): is_list,
        ("arrays", "*"): is_text,
        ("digest",): is_text,
    },
    frozenset({("format",), ("version",), ("arrays",), ("digest",)}),
)


@st.composite
def unit(draw: Draw) -> Input:
    """A store with a unit."""
    given = Input(valid.unit(), "as it is", ACCEPT)
    way = draw(st.sampled_from(("json", "json", "npy", "known", "entry")))
    record = "scores-1/unit.json"
    if way == "entry":
        return draw(entry_of(given, (record, "scores-1/values.npy", "scores-1/flags.npy")))
    if way == "json":
        done = changed(given, record, draw(text_of_json(tree("unit", record), UNIT)))
        return _resigned(done, record, draw(st.booleans()))
    name = draw(st.sampled_from(("values", "flags")))
    file = f"scores-1/{name}.npy"
    found = draw(npy_of(array("unit", file), "biufcSUVmM", fixed=False, finite=False))
    if way == "npy":
        same = found.data == given.files[file]
        return changed(given, file, replace(found, verdict=ACCEPT if same else REFUSE))
    return _signed(changed(given, file, found, "known "), record)


def _resigned(given: Input, record: str, signed: bool) -> Input:
    """Whether a record that was changed is accepted goes by its digest too, which knows -0.0 from 0.0."""
    if signed:
        return replace(_signed(given, record), verdict=None)
    return replace(given, verdict=REFUSE if given.verdict == REFUSE else None)


def _signed(given: Input, record: str) -> Input:
    """The record has the digest of what lies there, as far as it is still a record."""
    folder = record.rpartition("/")[0]
    try:
        said = json.loads(given.files[record])  # type: ignore[arg-type]
        arrays = [(name, hashlib.sha256(given.files[f"{folder}/{name}.npy"]).hexdigest()) for name in said["arrays"]]  # type: ignore[arg-type]
        about = said["about"]
        about = {k: v for k, v in about.items() if k != "seconds"} if isinstance(about, dict) else about
        text = json.dumps([sorted(arrays), about], sort_keys=True)
    except (ValueError, KeyError, TypeError, RecursionError):
        return given
    signed = said | {"digest": hashlib.sha256(text.encode()).hexdigest()}
    return replace(given.with_file(record, json.dumps(signed).encode()), words=f"signed {given.words}")


# --- results and studies


@cache
def run_schema() -> Schema:
    """What is known of run.json."""
    run = tree("result", "run.json").value
    split = {"split": is_text, "prompts": is_text}
    kinds = {
        **fields(
            of={
                "format": one_of("edgewise-result"),
                "version": one_of(3),
                "model": is_text,
                "weights": is_text,
                "task": is_text,
                "seed": is_int,
                "device": is_text,
                "dtype": is_text,
                "threads": is_count,
                "bos": or_null(is_count),
                "settings": is_object,
                "graph": is_object,
                "train": is_object,
                "test": is_object,
                "accuracy": is_object,
                "tuning": or_null(is_object),
                "overlap": is_object,
                "seconds": is_object,
                "versions": is_object,
            }
        ),
        **fields("train", of=split | {"examples": is_positive}),
        **fields("test", of=split | {"examples": one_of(5)}),
        **fields("graph", of=SHAPE),
        **fields("accuracy", of={"top": is_number, "beats": is_number}),
        **{("seconds", name): is_number for name in run["seconds"]},
        **{("versions", name): is_text for name in run["versions"]},
        (): is_object,
    }
    return Schema(
        kinds,
        frozenset({(name,) for name in run} | {("train", name) for name in run["train"]} | {("graph", "n_layers")}),
    )


CURVE = Schema(
    {
        (): is_list,
        ("*",): is_object,
        ("*", "benchmark"): is_text,
        ("*", "method"): is_text,
        ("*", "pnr"): or_null(is_number),
        ("*", "alias"): is_text,
        ("*", "chosen_on"): is_text,
        ("*", "choices"): is_list,
        ("*", "sizes"): is_list,
        ("*", "sizes", "*"): is_object,
        ("*", "sizes", "*", "share"): is_number,
        ("*", "sizes", "*", "edges_asked"): is_count,
        ("*", "sizes", "*", "edges_kept"): is_count,
    },
    frozenset(
        {("*", name) for name in ("benchmark", "method", "alias", "chosen_on", "sizes")}
        | {("*", "sizes", "*", name) for name in ("share", "edges_asked", "edges_kept")}
    ),
    frozenset({(), ("*", "sizes")}),
)


EXAMPLES = Schema(
    {
        (): is_object,
        ("format",): one_of("edgewise-examples"),
        ("version",): one_of(1),
        ("split",): is_text,
        ("left_out",): one_of(0),
        ("prompts",): is_list,
        ("prompts", "*"): is_object,
        ("prompts", "*", "clean"): is_list,
        ("prompts", "*", "clean", "*"): is_text,
        ("prompts", "*", "corrupted"): is_list,
        ("prompts", "*", "correct"): is_text,
        ("prompts", "*", "incorrect"): is_text,
    },
    frozenset(
        {("format",), ("version",), ("prompts",), ("split",), ("left_out",)}
        | {("prompts", "*", name) for name in ("clean", "corrupted", "correct", "incorrect")}
    ),
    frozenset({("prompts",), ("prompts", "*", "clean"), ("prompts", "*", "corrupted")}),
)
ARCHIVES = ("circuits.npz", "circuits.npz", "statistics.npz", "learned.npz", "attention.npz")


@cache
def _npz(archive: str) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(valid.result()[archive])) as held:
        return {name: held.read(name) for name in held.namelist()}


@cache
def _npz_array(archive: str, name: str) -> np.ndarray:
    return np.load(io.BytesIO(_npz(archive)[name]))


@st.composite
def result(draw: Draw) -> Input:
    """A result folder."""
    given = Input(valid.result(), "as it is", ACCEPT)
    way = draw(
        st.sampled_from(("run", "run", "run", "curve", "curve", "examples", "npz", "npz", "npz", "bomb", "entry"))
    )
    if way == "entry":
        return draw(entry_of(given, ("run.json", "curve.json", "circuits.npz", "statistics.npz")))
    if way == "run":
        return changed(given, "run.json", draw(text_of_json(tree("result", "run.json"), run_schema())))
    if way == "curve":
        return changed(given, "curve.json", draw(text_of_json(tree("result", "curve.json"), CURVE)))
    if way == "examples":
        return changed(given, "examples.json", draw(text_of_json(tree("result", "examples.json"), EXAMPLES)))
    archive = draw(st.sampled_from(ARCHIVES))
    members = _npz(archive)
    if way == "npz":

        def change(draw: Draw, name: str) -> Mutated:
            array = _npz_array(archive, name)
            return draw(npy_of(array, array.dtype.kind))

        return changed(given, archive, draw(zip_of(members, change, tuple(members))))
    name = draw(st.sampled_from(sorted(members)))
    head = draw(st.sampled_from((members[name], members[name][:128].replace(b"(", b"(9999999, ", 1))))
    claimed = draw(st.sampled_from((None, 100, len(members[name]))))
    found = Mutated(bomb(members, name, head, 700, claimed), f"npz bomb: {name}, says {claimed}", REFUSE)
    return changed(given, archive, found)


@cache
def _cell() -> str:
    return next(name.split("/")[1] for name in valid.study() if "/cell-" in name)


@st.composite
def study(draw: Draw) -> Input:
    """A study folder."""
    given = Input(valid.study(), "as it is", ACCEPT)
    cell = f"store/{_cell()}"
    names = sorted(name.rpartition("/")[2] for name in given.files if name.startswith(cell) and name.endswith(".npy"))
    way = draw(st.sampled_from(("plan", "plan", "rekeyed", "rekeyed", "unit", "unit", "npy", "known", "entry")))
    if way == "entry":
        return draw(entry_of(given, ("study.json", f"{cell}/unit.json", *(f"{cell}/{name}" for name in names))))
    if way == "unit":
        found = draw(text_of_json(tree("study", f"{cell}/unit.json"), UNIT))
        done = changed(given, f"{cell}/unit.json", found)
        return _resigned(done, f"{cell}/unit.json", draw(st.booleans()))
    if way in ("plan", "rekeyed"):
        found = draw(text_of_json(tree("study", "study.json")))
        verdict = found.verdict if found.verdict == REFUSE or way == "rekeyed" else None
        done = changed(given, "study.json", replace(found, verdict=verdict))
        return _rekeyed(done, found.data) if way == "rekeyed" else done
    name = draw(st.sampled_from(names))
    found = draw(npy_of(array("study", f"{cell}/{name}")))
    if way == "npy":
        same = found.data == given.files[f"{cell}/{name}"]
        return changed(given, f"{cell}/{name}", replace(found, verdict=ACCEPT if same else REFUSE))
    return _signed(changed(given, f"{cell}/{name}", found, "known "), f"{cell}/unit.json")


def _rekeyed(given: Input, data: bytes) -> Input:
    """The cell lies where a reader of this plan looks for it."""
    from edgewise.study.folder import cell_key

    try:
        record = json.loads(data)["plan"]
        key = cell_key(record, "demo", "ioi")
    except (ValueError, KeyError, TypeError, RecursionError):
        return given
    files = {name.replace(_cell(), key): entry for name, entry in given.files.items()}
    return replace(given, files=files, words=f"rekeyed {given.words}")


# --- submissions

NAMES = (
    "ioi_gpt2",
    "mcqa_gemma2",
    "abs-True",
    "abs-False",
    "IOI_GPT2",
    "ioi_",
    "_",
    "x",
    "\x1b[31m_gpt2",
    "ioi_gpt2\n",
    "[bold]_gpt2",
    "..x",
    ".hidden",
    "a" * 200,
    "\udcff_gpt2",
    "abs-true/abs-false",
    "abs-True/" * 150 + "x",
    "ioi_gpt2 ",
)


@st.composite
def submission(draw: Draw) -> Input:
    """The tree of a submission."""
    given = Input(valid.submission(), "as it is", ACCEPT)
    way = draw(st.sampled_from(("json", "json", "pt", "tree", "tree", "entry")))
    if way == "entry":
        found = draw(entry_of(given, tuple(given.files)))
        return replace(found, verdict=None)
    if way == "json":
        name = draw(st.sampled_from([name for name in given.files if name.endswith(".json")]))
        return changed(given, name, draw(text_of_json(tree("circuit", "circuit.json"), EAP["scores"])))
    if way == "pt":
        name = draw(st.sampled_from([name for name in given.files if name.endswith(".pt")]))
        kind = draw(st.sampled_from(("value", "tensor", "zip", "pickle", "legacy", "bytes")))
        return changed(given, name, _pt(draw, kind, "scores"))
    name = draw(st.sampled_from(NAMES))
    inner = draw(st.sampled_from(("", "/x.json", "/ioi_gpt2", "/ioi_gpt2/x.json", "/abs-True")))
    own = name.rpartition("/")[2]
    new = draw(
        st.sampled_from(
            (
                Folder(),
                b"{}",
                Pipe(),
                Link("."),
                Link(".."),
                Link(own),
                Link("nowhere"),
                Link("/dev/zero"),
                Link("/proc/self"),
                Link("../ioi_gpt2"),
                Sparse(GIANT, b"{"),
            )
        )
    )
    if name in ("ioi_gpt2", "mcqa_gemma2") and not inner:
        given = replace(given, files={known: held for known, held in given.files.items() if not known.startswith(name)})
    return replace(given.with_file(f"{name}{inner}", new), words=f"tree: {new!r} at {name[:40]!r}{inner}", verdict=None)


# --- tasks

VOCABULARY = 285


def _is_token(value: Any) -> bool:
    return type(value) is int and 0 <= value < VOCABULARY


_SPLIT = {("split",): is_text, (): is_object}
TEXT = Schema({(name,): is_text for name in valid.TEXT} | _SPLIT, frozenset((name,) for name in (*valid.TEXT, "split")))
TOKENS = Schema(
    {
        ("clean_ids",): is_list,
        ("corrupted_ids",): is_list,
        ("correct_id",): _is_token,
        ("incorrect_id",): _is_token,
        ("clean_ids", "*"): _is_token,
        ("corrupted_ids", "*"): _is_token,
    }
    | _SPLIT,
    frozenset((name,) for name in valid.TOKENS),
    frozenset({("clean_ids",), ("corrupted_ids",)}),
)
MIB = Schema(
    {(): is_object, ("s2_io_flip_counterfactual",): is_object},
    frozenset({("prompt",), ("metadata",), ("s2_io_flip_counterfactual",), ("metadata", "subject")}),
)
ROWS = {"text": (valid.text_rows, TEXT), "tokens": (valid.token_rows, TOKENS), "mib": (valid.mib_rows, MIB)}


def _lines(rows: Any) -> bytes:
    return "".join(f"{json.dumps(row)}\n" for row in rows).encode()


@cache
def _row_tree(kind: str) -> Tree:
    return Tree.of(ROWS[kind][0]()[0])


@st.composite
def jsonl(draw: Draw, kinds: tuple[str, ...] = ("text", "tokens"), file: str = "task.jsonl") -> Input:
    """A task file, one JSON object a line."""
    kind = draw(st.sampled_from(kinds))
    rows, schema = ROWS[kind][0](), ROWS[kind][1]
    given = Input({file: _lines(rows)}, "as it is", ACCEPT, file)
    way = draw(st.sampled_from(("row", "row", "row", "row", "lines", "bytes", "entry")))
    if way == "entry":
        return draw(entry_of(given, (file,)))
    if way == "row":
        found = draw(text_of_json(_row_tree(kind), schema))
        # A row that is cut to nothing is an empty line.
        empty = not found.data.strip()
        several = b"\n" in found.data.strip() or b"\r" in found.data
        verdict = None if empty or (several and found.verdict == ACCEPT) else found.verdict
        data = _lines(rows[1:])
        return changed(given, file, replace(found, data=found.data + b"\n" + data, verdict=verdict), f"{kind} row ")
    whole = _lines(rows)
    if way == "bytes":
        return changed(given, file, draw(bytes_of(whole)), f"{kind} ")
    lines = whole.splitlines(keepends=True)
    new = draw(
        st.sampled_from(
            (
                (b"\xef\xbb\xbf" + whole, ACCEPT),
                (b"\n\n" + whole + b"\n \n", ACCEPT),
                (whole.rstrip(b"\n"), ACCEPT),
                (b"", REFUSE),
                (b"\n", REFUSE),
                (b"[]\n" + whole, REFUSE),
                (whole + b"1\n", REFUSE),
                (b"".join(lines[::-1]), ACCEPT),
                (whole.replace(b"\n", b"\r\n"), ACCEPT),
                (whole.replace(b"\n", b"\r"), REFUSE),
                (whole.replace(b"\n", b"\n\0"), REFUSE),
                (whole * 200, None),
                (lines[0] * 12, None),
                (whole.replace(b"\n", b" "), REFUSE),
            )
        )
    )
    return changed(given, file, Mutated(new[0], f"{kind} lines: {new[0][:30]!r}", new[1]))


def _csv(kind: str) -> list[list[str]]:
    rows = ROWS[kind][0]()
    return [
        list(rows[0]),
        *([one if isinstance(one, str) else json.dumps(one) for one in row.values()] for row in rows),
    ]


def _csv_text(rows: list[list[str]]) -> bytes:
    file = io.StringIO(newline="")
    csv.writer(file).writerows(rows)
    return file.getvalue().encode("utf-8", "surrogatepass")


CELLS = (
    "",
    " ",
    "0",
    "-1",
    "1_0",
    "true",
    "1.0",
    "1e3",
    "[1, 2]",
    "[[1]]",
    "[1,,2]",
    "1 2 3",
    "\0",
    '"',
    '""',
    "\r",
    "\n",
    "a,b",
    "\x1b[31m",
    "=1+1",
    "9" * 5000,
    "x" * 140000,
    "\ud800",
    "²",
    "٣",
    "[" * 1000,
    "NaN",
    "None",
    "999999",
    "[bold]x",
)


@st.composite
def table(draw: Draw) -> Input:
    """A task file with columns."""
    kind = draw(st.sampled_from(("text", "tokens")))
    rows = _csv(kind)
    given = Input({"task.csv": _csv_text(rows)}, "as it is", ACCEPT, "task.csv")
    way = draw(st.sampled_from(("cell", "cell", "cell", "header", "ragged", "order", "text", "bytes", "entry")))
    row, column = draw(st.integers(1, 2)), draw(st.integers(0, len(rows[0]) - 1))
    words, verdict = f"csv {way}: row {row}, {rows[0][column]}", None
    if way == "entry":
        return draw(entry_of(given, ("task.csv",)))
    if way == "bytes":
        return changed(given, "task.csv", draw(bytes_of(_csv_text(rows))), f"{kind} ")
    if way == "cell":
        cell = draw(st.sampled_from(CELLS))
        name = rows[0][column]
        whole = ("0", "²", "٣", "1_0", "true", "1.0", "1e3", "-1", "999999", "NaN", "None", "")
        if kind == "tokens" and name in ("correct_id", "incorrect_id") and cell in whole and cell != "0":
            verdict = REFUSE
        rows[row][column] = cell
        words = f"csv cell: {cell[:30]!r} as {name} of {kind}"
    elif way == "header":
        new = draw(
            st.sampled_from(("", "clean", "correct_id", "split", "x", "\0", "CLEAN", rows[0][column] + " ", "\x1b[1m"))
        )
        verdict = REFUSE if new in rows[0] and new != rows[0][column] else None
        words = f"csv header: {rows[0][column]} is called {new!r}, {kind}"
        rows[0][column] = new
    elif way == "ragged":
        more = draw(st.booleans())
        rows[row] = [*rows[row], "x"] if more else rows[row][:-1]
        words, verdict = f"csv ragged: {'longer' if more else 'shorter'} row of {kind}", REFUSE
    elif way == "order":
        rows = [cells[::-1] for cells in rows]
        verdict = ACCEPT
    else:
        whole = _csv_text(rows)
        new = draw(
            st.sampled_from(
                (
                    (b"\xef\xbb\xbf" + whole, ACCEPT),
                    (whole.replace(b"\r\n", b"\n"), ACCEPT),
                    (whole + b'"', None),
                    (b"", REFUSE),
                    (whole.split(b"\r\n")[0], REFUSE),
                    (whole.replace(b",", b";"), REFUSE),
                    (b'"' + whole, REFUSE),
                    (b"\0" * 100, REFUSE),
                    (whole.replace(b"\r\n", b"\r\n\0"), REFUSE),
                    (whole.decode().encode("utf-16"), REFUSE),
                    (b"a," * 10**5, REFUSE),
                    (whole + whole.split(b"\r\n", 1)[1] * 200, None),
                )
            )
        )
        return changed(given, "task.csv", Mutated(new[0], f"csv text: {new[0][:30]!r} of {kind}", new[1]))
    return changed(given, "task.csv", Mutated(_csv_text(rows), words, verdict))


@st.composite
def mib(draw: Draw) -> Input:
    """A local copy of the benchmark's data set: a file, or a folder."""
    found = draw(jsonl(("mib",), "train.jsonl"))
    read = draw(st.sampled_from(("file", "folder")))
    if draw(st.integers(0, 9)):
        return replace(found, read=read)
    name = draw(
        st.sampled_from(
            (
                "train-00000-of-00002.jsonl",
                "data/train.jsonl",
                "train-0-of-99999999999999999999.jsonl",
                "train.parquet",
                "TRAIN.jsonl",
            )
        )
    )
    files: dict[str, Any] = {name: next(iter(found.files.values()), b"")}
    return Input(files, f"named {name}: {found.words}", None, "folder")


# --- models

CONFIG = Schema(
    {
        (): is_object,
        **fields(of={name: is_positive for name in ("n_layer", "n_head", "n_embd", "n_positions", "vocab_size")}),
        ("model_type",): one_of("gpt2"),
        ("activation_function",): is_text,
    },
    frozenset({("model_type",)}),
)
FILES = ("tokenizer.json", "tokenizer_config.json", "generation_config.json")


def _tensors() -> tuple[dict[str, Any], bytes]:
    data = valid.model()["model.safetensors"]
    (length,) = struct.unpack("<Q", data[:8])
    return json.loads(data[8 : 8 + length]), data[8 + length :]


@cache
def _tensors_tree() -> Tree:
    return Tree.of(_tensors()[0])


@st.composite
def model(draw: Draw) -> Input:
    """A model's folder."""
    read = draw(st.sampled_from(("inspect", "load")))
    given = Input(valid.model(), "as it is", ACCEPT, read)
    way = draw(
        st.sampled_from(
            ("config", "config", "config", "tokens", "tokens", "tensors", "tensors", "code", "bytes", "entry")
        )
    )
    if way == "entry":
        found = draw(entry_of(given, ("config.json", "model.safetensors", "tokenizer.json")))
        strict = "config.json" in found.words or (read == "load" and "model.safetensors" in found.words)
        return found if strict else replace(found, verdict=None)
    if way == "config":
        return changed(given, "config.json", draw(text_of_json(tree("model", "config.json"), CONFIG)))
    if way == "code":
        return _code(draw, given)
    given = replace(given, read="load")
    if way == "tokens":
        name = draw(st.sampled_from([file for file in FILES if file in given.files]))
        found = draw(text_of_json(tree("model", name)))
        return changed(given, name, found if found.verdict == ACCEPT else replace(found, verdict=None))
    if way == "bytes":
        name = draw(st.sampled_from(sorted(given.files)))
        return changed(given, name, draw(bytes_of(given.files[name])))  # type: ignore[arg-type]
    found = draw(text_of_json(_tensors_tree()))
    length = draw(st.sampled_from((None, None, None, 0, 1, len(found.data) + 1, 2**31, 2**40, 2**63)))
    head = struct.pack("<Q", len(found.data) if length is None else length) + found.data
    body = _tensors()[1]
    cut = draw(st.sampled_from((None, None, 0, len(body) - 1)))
    whole = head + (body if cut is None else body[:cut])
    broken = length is not None or cut is not None
    words = f"safetensors: {found.words}, header {length}, cut {cut}"
    return changed(given, "model.safetensors", Mutated(whole, words, REFUSE if broken else None))


def _code(draw: Draw, given: Input) -> Input:
    """A config that names code of its own."""
    kind = draw(st.sampled_from(("gpt2", "own", "llama", "")))
    auto = {"AutoConfig": "own.Config", "AutoModelForCausalLM": "own.Model", "AutoTokenizer": ["own.Tokenizer", None]}
    picked = {name: auto[name] for name in draw(st.sets(st.sampled_from(sorted(auto)), min_size=1))}
    config = json.loads(given.files["config.json"]) | {"model_type": kind, "auto_map": picked}  # type: ignore[arg-type]
    tokens = json.loads(given.files["tokenizer_config.json"]) | {"auto_map": picked, "tokenizer_class": "Tokenizer"}  # type: ignore[arg-type]
    done = given.with_file("config.json", json.dumps(config).encode()).with_file("own.py", f"{CODE}\n".encode())
    if draw(st.booleans()):
        done = done.with_file("tokenizer_config.json", json.dumps(tokens).encode())
    return replace(done, words=f"code: {kind!r} with {sorted(picked)}", verdict=None if kind == "gpt2" else REFUSE)


@st.composite
def gguf(draw: Draw) -> Input:
    """A model in one file."""
    data = valid.gguf()["tiny.gguf"]
    given = Input({"tiny.gguf": data}, "as it is", ACCEPT, draw(st.sampled_from(("inspect", "load"))))
    way = draw(st.sampled_from(("bytes", "bytes", "number", "number", "cut", "word", "entry")))
    if way == "entry":
        return draw(entry_of(given, ("tiny.gguf",)))
    if way == "bytes":
        return changed(given, "tiny.gguf", draw(bytes_of(data)))
    if way == "cut":
        end = draw(st.integers(0, len(data) - 1))
        return changed(given, "tiny.gguf", Mutated(data[:end], f"gguf cut: at {end} of {len(data)}", REFUSE))
    if way == "word":
        old = draw(
            st.sampled_from(
                (
                    b"llama",
                    b"general.architecture",
                    b"llama.block_count",
                    b"tokenizer.ggml.tokens",
                    b"blk.0",
                    b"token_embd",
                    b"<s>",
                )
            )
        )
        new = draw(st.sampled_from((b"gpt2\0", b"\xff" * 5, b"xxxxx", b"\x1b[31m"))) * 5
        return changed(
            given,
            "tiny.gguf",
            Mutated(data.replace(old, new[: len(old)]), f"gguf word: {old!r} to {new[: len(old)]!r}"),
        )
    # Counts and lengths: version, tensors, keys, then those of the first keys.
    at = draw(st.sampled_from((4, 8, 16, 24, 32 + 20, *range(24, 800, 4))))
    value = draw(st.sampled_from((0, 1, 2, 255, 2**31 - 1, 2**32 - 1)))
    new = data[:at] + struct.pack("<I", value) + data[at + 4 :]
    return changed(given, "tiny.gguf", Mutated(new, f"gguf number: {value} at {at}"))


# --- commands: what uses the readers, and prints what was read

COMMANDS = {
    "result": (result, ("report", "compare", "convert", "view", "show", "export", "report --json", "compare --json")),
    "study": (study, ("report", "compare", "report --json", "compare --json")),
    "scores": (scores, ("select", "convert", "select --json", "convert --json")),
    "ranking": (ranking, ("select", "convert", "select --json", "convert --json")),
    "circuit.json": (eap_json, ("select", "convert", "view", "show", "export", "select --json", "convert --json")),
    "circuit.pt": (eap_pt, ("select", "convert", "view", "show", "export", "select --json", "convert --json")),
    "circuit.npz": (packed, ("select", "convert", "view", "show", "export", "convert --json")),
    "submission": (submission, ("check", "check --json")),
}
SHOWN = (
    "\x1b[31mred\x1b[0m",
    "\x1b]0;title\x07",
    "[bold]x[/bold]",
    "[/]",
    "[",
    "$x_{$",
    "$",
    "$$",
    "\\frac{",
    "a\nb",
    "\u202e",
    "\0",
    "\x9b31m",
    "\ud800",
    "x" * 3000,
    "%",
    "{",
    "\t",
    "\u2028",
    "[link=file:///x]y[/link]",
    ":smile:",
    "\x7f",
)


@st.composite
def command(draw: Draw) -> Input:
    """A command on one of the above; often one with names that a terminal or a figure would take for orders."""
    kind = draw(st.sampled_from(sorted(COMMANDS)))
    attack, words = COMMANDS[kind]
    read = f"{kind} {draw(st.sampled_from(words))}"
    found = _named(draw) if kind == "result" and draw(st.booleans()) else draw(attack())
    return replace(found, read=read, verdict=None, draws="report" in read)


def _named(draw: Draw) -> Input:
    """A result whose names are odd, but consistent."""
    name = draw(st.sampled_from(SHOWN))
    place = draw(st.sampled_from(("method", "model", "task", "split", "device", "version")))
    run, curve = (json.loads(valid.result()[file]) for file in ("run.json", "curve.json"))
    if place == "method":
        old = curve[1]["method"]
        curve[1]["method"] = curve[1]["alias"] = name
        overlap = run["overlap"].items()
        run["overlap"] = {b: {(name if m == old else m): v for m, v in found.items()} for b, found in overlap}
    elif place == "split":
        run["test"]["split"] = name
    elif place == "version":
        run["versions"] = {name: name}
    else:
        run[place] = name
    examples = json.loads(valid.result()["examples.json"]) | {"split": run["test"]["split"]}
    for prompt in examples["prompts"]:
        prompt["clean"][0] = prompt["correct"] = name
    given = Input(valid.result(), f"named: {place} is {name[:40]!r}")
    for file, held in (("run.json", run), ("curve.json", curve), ("examples.json", examples)):
        given = given.with_file(file, json.dumps(held).encode())
    return given
