"""Untrusted files: wrong ones raise errors that name the file, and no file takes memory out of proportion."""

import io
import json
import os
import pickle
import struct
import subprocess
import sys
import zipfile
from typing import Any, Literal, TypedDict

import numpy as np
import pytest
import torch
from hypothesis import given, settings, strategies as st
from hypothesis.extra.numpy import arrays

from edgewise import EdgeScores, Graph, InputError
from edgewise.core.scores import fill_folder
from edgewise.io.arrays import load_torch_file, read_array, read_arrays
from edgewise.io.reading import wrap_read_errors
from edgewise.io.records import convert_record, read_json

GRAPH = Graph(2, 2, 6)


@pytest.mark.parametrize(
    "content, words",
    [(b'{"a": 1, "a": 1}', "'a' is there more than once"), (b'[{"b": {"a": 1, "c": 2, "a": 3}}]', "more than once"),
     (b"[NaN]", "isn't JSON"), (b"[-Infinity]", "isn't JSON"), (b"[1e999]", "out of range"),
     (b'["\\ud800"]', "isn't JSON"), (b'{"\\uDFFF": 1}', "isn't JSON"), (b'["\\ud83d\\u0041"]', "isn't JSON"),
     (b'["\xff"]', "isn't JSON"), (b"\xef\xbb\xbf[]", "isn't JSON"), (b"", "isn't JSON"), (b"[1,]", "isn't JSON"),
     (b"[" * 10**5, "isn't JSON"), (b"1" * 10**4, "isn't JSON"), ("[1]".encode("utf-16"), "isn't JSON")],
)  # fmt: skip
def test_json_that_breaks_the_standard_raises(tmp_path, content, words):
    path = tmp_path / "file.json"
    path.write_bytes(content)
    with pytest.raises(InputError, match=words) as refusal:
        read_json(path)
    assert str(path) in str(refusal.value) and "\n" not in str(refusal.value)


@settings(max_examples=30, deadline=None)
@given(st.recursive(st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False)
                    | st.text(st.characters(exclude_categories=["Cs"])),
                    lambda some: st.lists(some, max_size=4) | st.dictionaries(st.text(max_size=3), some, max_size=4)),
       st.booleans())  # fmt: skip
def test_valid_json_is_read_as_json_loads_reads_it(tmp_path_factory, value, ascii_only):
    path = tmp_path_factory.mktemp("json") / "file.json"
    text = json.dumps(value, ensure_ascii=ascii_only)
    try:
        path.write_text(text, encoding="utf-8")
    except UnicodeEncodeError:
        return
    assert read_json(path) == json.loads(text)


def test_escaped_backslashes_are_not_half_characters(tmp_path):
    path = tmp_path / "file.json"
    path.write_text(r'["\\ud800", "\ud83d\ude00"]')
    assert read_json(path) == ["\\ud800", "\U0001f600"]


@pytest.mark.parametrize("read", [read_json, read_array, lambda path: read_arrays(path, {}), load_torch_file])
def test_pipes_folders_and_missing_files_raise_at_once(tmp_path, read):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "circle").symlink_to("circle")
    for path, words in (
        (tmp_path, "a folder"), (tmp_path / "pipe", "not a regular"), (tmp_path / "none", "no file"),
        (tmp_path / "circle", "can't be read"), (tmp_path / ("n" * 300), "can't be read"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=words):
            read(path)


@settings(max_examples=40, deadline=None)
@given(arrays(st.sampled_from(["f2", "f4", "f8", "u1", "i8", "?"]),
              st.lists(st.integers(0, 4), max_size=3).map(tuple)), st.booleans())  # fmt: skip
def test_arrays_survive_save_and_load(tmp_path_factory, array, fortran):
    folder = tmp_path_factory.mktemp("arrays")
    array = np.asfortranarray(array) if fortran else array
    np.save(folder / "a.npy", array)
    np.savez_compressed(folder / "c.npz", a=array, b=array)
    np.savez(folder / "s.npz", a=array, b=array)
    expected = dict.fromkeys("ab", (array.dtype.str[1:], (None,) * array.ndim))
    found = [read_array(folder / "a.npy", shape=array.shape)]
    found += [one for name in "cs" for one in read_arrays(folder / f"{name}.npz", expected).values()]
    for one in found:
        np.testing.assert_array_equal(one, array)
        assert one.dtype == array.dtype and one.shape == array.shape and (not one.size or not one.flags.writeable)


def npy(descr="'<f8'", fortran="False", shape="(2, 3)", data=48, version=b"\x01\x00", length=None):
    header = f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n".encode("latin-1")
    size = struct.pack("<H" if version == b"\x01\x00" else "<I", len(header) if length is None else length)
    return b"\x93NUMPY" + version + size + header + bytes(data)


BROKEN = [
    b"", b"\x93NUMPY", b"not numpy at all", npy()[:30], npy(version=b"\x04\x00"), npy(length=0), npy(length=60_000),
    npy(version=b"\x02\x00", length=2**32 - 1), npy("'|O'"), npy("'<f99'"), npy("'<m8[s]'"), npy("[('a', '<f8')]"),
    npy("'>f8'"), npy("'<c16'"), npy("'<U2'"), npy("'<i8'"), npy("3"), npy("''"), npy("'zz'"), npy("'<f8', 'more': '"),
    npy(fortran="1"), npy(fortran="__import__('os')"), npy(shape="(2, -3)"), npy(shape="(2.0, 3)"), npy(shape="6"),
    npy(shape="(True, 6)"), npy(shape="(2, 4)"), npy(shape="(2, 3, 1)"), npy(shape="(6,)"), npy(shape="()"),
    npy(shape="(10**9, 3)"), npy(shape=f"({'9' * 17}, 3)"), npy(shape=f"({'9' * 30}, 3)"), npy(shape="(" * 500),
    npy(data=47), npy(shape="(2, 3"), pickle.dumps(np.zeros(3)),
]  # fmt: skip


@pytest.mark.parametrize("content", BROKEN, ids=range(len(BROKEN)))
def test_arrays_with_wrong_headers_raise(tmp_path, content):
    path, packed = tmp_path / "a.npy", tmp_path / "a.npz"
    path.write_bytes(npy())
    assert read_array(path, "f", (2, 3)).shape == (2, 3)
    path.write_bytes(content)
    with zipfile.ZipFile(packed, "w") as archive:
        archive.writestr("a.npy", content)
    for read in (lambda: read_array(path, "f", (2, 3)), lambda: read_arrays(packed, {"a": ("f", (2, 3))})):
        with pytest.raises(InputError) as refusal:
            read()
        assert str(tmp_path) in str(refusal.value) and "\n" not in str(refusal.value)


def packed_with(tmp_path, **members):
    path = tmp_path / "a.npz"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in members.items():
            archive.writestr(f"{name}.npy", content)
    return path


def test_damaged_zips_raise(tmp_path):
    def refused(path, words=None):
        with pytest.raises(InputError, match=words) as refusal:
            read_arrays(path, {"a": ("f", (2, 3))})
        assert str(path) in str(refusal.value)

    whole = packed_with(tmp_path, a=npy(data=48)).read_bytes()
    path = tmp_path / "a.npz"
    assert read_arrays(path, {"a": ("f", (2, 3))})["a"].shape == (2, 3)
    refused(packed_with(tmp_path, b=npy()), "must hold the arrays a, each once, but has b")
    refused(packed_with(tmp_path, a=npy(), b=npy()), "each once")
    refused(packed_with(tmp_path), "has none")
    with pytest.warns(UserWarning), zipfile.ZipFile(packed_with(tmp_path, a=npy()), "a") as archive:
        archive.writestr("a.npy", npy())
    refused(path, "each once")
    for method in (zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA):
        with zipfile.ZipFile(path, "w", method) as archive:
            archive.writestr("a.npy", npy())
        refused(path, "in a way that NumPy doesn't write")
    central = whole.index(b"PK\x01\x02")
    flipped, encrypted, strange = (bytearray(whole) for _ in range(3))
    flipped[central + 16] ^= 1  # the sum of all bytes
    encrypted[central + 8] |= 1
    strange[central + 10] = 77
    cut_inside = whole[: central - 5] + whole[central:]
    for content in (flipped, encrypted, strange, whole[:-30], cut_inside, b"", b"PK\x05\x06"):
        path.write_bytes(content)
        refused(path)


def test_read_errors_say_why():
    def fail(error):
        with pytest.raises(InputError, match=r"file\.x can't be read: .") as refusal, wrap_read_errors("file.x"):
            raise error
        return refusal.value

    assert isinstance(fail(PermissionError(13, "Permission denied")).__cause__, PermissionError)
    for error in (EOFError(), KeyError("x"), MemoryError(), RecursionError("deep\nadvice"), struct.error("short")):
        assert "\n" not in str(fail(error))


class Part(TypedDict):
    name: str
    graph: Graph | None


TYPED = [
    (int, 3), (int, -(2**62)), (float, 3), (float, 0.5), (str, "a"), (bool, True), (None, None),
    (Any, [1, {"a": None}]),
    (int | None, None), (int | None, 3), (str | dict[str, Any], {"a": 1}), (tuple[int, ...], [1, 2]),
    (Graph, {"n_layers": 1, "n_heads": 1, "d_model": 1, "parallel": False}),
    (list[float], []), (tuple[int, str], [1, "a"]), (dict[str, bool], {"a": True}), (Literal["a", "b"], "b"),
    (Part, {"name": "a", "graph": None}),
]  # fmt: skip
UNTYPED = [
    (int, True), (int, 3.0), (int, "3"), (int, None), (float, True), (float, "3"), (float, 10**400),
    (str, 3), (bool, 1), (bool, "true"), (None, 0), (int | None, "a"),
    (tuple[int, ...], [1, "a"]), (tuple[int, ...], "12"), (tuple[int, ...], 3), (list[float], {"a": 1}),
    (tuple[int, str], [1]), (dict[str, bool], {"a": 1}), (dict[str, bool], [True]), (dict[str, Any], {1: 2}),
    (Literal["a", "b"], "c"), (Literal[1], True), (Part, {"name": "a"}), (Part, {"name": "a", "graph": None, "b": 1}),
    (Part, {"name": 1, "graph": None}), (Part, {"name": "a", "graph": {}}), (Part, None),
    (Graph, {"n_layers": 1.0, "n_heads": 1, "d_model": 1, "parallel": False}),
    (Graph, {"n_layers": 10**9, "n_heads": 1, "d_model": 1, "parallel": False}),
]  # fmt: skip


@pytest.mark.parametrize("hint, value", TYPED)
def test_values_of_the_right_type_are_converted(hint, value):
    found = convert_record(hint, value, "here")
    expected = Graph(1, 1, 1) if hint is Graph else tuple(value) if str(hint).startswith("tuple") else value
    assert found == expected and type(found) is (float if hint is float else type(expected))


@pytest.mark.parametrize("hint, value", UNTYPED)
def test_values_of_the_wrong_type_raise_with_their_place(hint, value):
    with pytest.raises(InputError, match=r"^here") as refusal:
        convert_record(hint, value, "here")
    assert len(str(refusal.value)) < 300


def test_torch_files_are_read_as_torch_reads_them(tmp_path):
    matrix = torch.randn(6, 5, generator=torch.Generator().manual_seed(0))
    data = {
        "views": [matrix.T, matrix[1:4, ::2], matrix.half(), matrix.bfloat16(), matrix > 0, torch.tensor(3.5)],
        "parameter": torch.nn.Parameter(matrix), "dtype": torch.float32,
        "plain": {"a": None, "b": True, "c": [1, 70000, -1, 2**40, 0.5, "é" * 300], "d": (), "e": {}},
        "names": [f"a{i}.h{j}" for i in range(20) for j in range(20)] + ["plain"],
    }  # fmt: skip
    torch.save(data, tmp_path / "file.pt")
    loaded = load_torch_file(tmp_path / "file.pt")
    assert all(map(torch.equal, loaded.pop("views"), data.pop("views")))
    assert torch.equal(loaded.pop("parameter"), data.pop("parameter")) and loaded == data


def stored(tmp_path, pickled, numbers=bytes(16), method=zipfile.ZIP_STORED, **more):
    path = tmp_path / "file.pt"
    with zipfile.ZipFile(path, "w", method) as archive:
        for name, content in {"data.pkl": pickled, "version": "3\n", "data/0": numbers, **more}.items():
            archive.writestr(f"archive/{name}", content)
    return path


class Raw:
    """A tensor as it is in a pickle, with any offset, shape and strides."""

    def __init__(self, offset=0, shape=(4,), strides=(1,), length=4, kind="FloatStorage", key="0", tag="storage"):
        self.arguments = ((tag, kind, key, "cpu", length), offset, shape, strides, False, {})

    def pickled(self):
        (tag, kind, key, place, length), offset, shape, strides, *_ = self.arguments
        out = io.BytesIO()

        def put(value):
            pickler = pickle._Pickler(out, 2)
            pickler.memoize = lambda _: None
            pickler.save(value)

        out.write(pickle.PROTO + b"\x02" + pickle.GLOBAL + b"torch._utils\n_rebuild_tensor_v2\n" + pickle.MARK)
        out.write(pickle.MARK)
        put(tag)
        out.write(pickle.GLOBAL + f"torch\n{kind}\n".encode())
        for value in (key, place, length):
            put(value)
        out.write(pickle.TUPLE + pickle.BINPERSID)
        for value in (offset, shape, strides, False, {}):
            put(value)
        out.write(pickle.TUPLE + pickle.REDUCE + pickle.STOP)
        return out.getvalue()


def test_tensors_outside_their_storage_raise(tmp_path):
    numbers = np.arange(4, dtype="<f4").tobytes()
    assert load_torch_file(stored(tmp_path, Raw(1, (3, 1), (1, 0)).pickled(), numbers)).tolist() == [[1], [2], [3]]
    for wrong in (
        Raw(1), Raw(0, (5,)), Raw(0, (2, 2), (3, 1)), Raw(-1, (2,)), Raw(0, (-1,)), Raw(3, (2,), (-1,)),
        Raw(0, (10**6, 10**6), (0, 0)), Raw(length=3), Raw(key="1"), Raw(key="../0"), Raw(tag="file"),
        Raw(0.0), Raw(0, ("4",)), Raw(0, 4), Raw(kind="Tensor"),
    ):  # fmt: skip
        with pytest.raises(InputError, match=r"file\.pt"):
            load_torch_file(stored(tmp_path, wrong.pickled(), numbers))


def test_torch_files_with_other_members_raise(tmp_path):
    def refused(path, words):
        with pytest.raises(InputError, match=words):
            load_torch_file(path)

    plain = pickle.dumps({"a": 1}, 2)
    assert load_torch_file(stored(tmp_path, plain, byteorder=b"little")) == {"a": 1}
    refused(stored(tmp_path, plain, method=zipfile.ZIP_DEFLATED), "compressed")
    refused(stored(tmp_path, b""), "damaged")
    with zipfile.ZipFile(stored(tmp_path, plain), "a") as archive:
        archive.writestr("other/data.pkl", plain)
    refused(tmp_path / "file.pt", "needs one data.pkl")
    torch.save({"a": torch.ones(3)}, tmp_path / "old.pt", _use_new_zipfile_serialization=False)
    refused(tmp_path / "old.pt", "older than 1.6")


@pytest.mark.parametrize(
    "code",
    [b"cos\nsystem\n(X\x04\x00\x00\x00truetR.", b"cbuiltins\neval\n.", b"ctorch\nload\n(X\x01\x00\x00\x00xtRb.",
     b"cbuiltins\nbytearray\n(J\xff\xff\xff\x7ftR.", b"ctorch\nTensor\n(J\xff\xff\xff\x7ftR.",
     b"i__main__\nX\n.", b"\x82\x01.", b"]q\x00h\x00a.", b"\x8a\xff", b"X\xff\xff\xff\x7f", b"j\xff\xff\xff\xff.", b"(",
     b"]q\x00" + b"".join(b"](" + b"h%c" % i * 9 + b"eq%c" % (i + 1) for i in range(30)) + b"."],
)  # fmt: skip
def test_pickles_that_call_functions_or_expand_raise(tmp_path, code):
    with pytest.raises(InputError, match=r"file\.pt"):
        load_torch_file(stored(tmp_path, b"\x80\x02" + code))


# Run by a process of its own, which may take 700 MB of addresses more than it has once everything is imported.
LIMITED = """
import resource, sys, time
from pathlib import Path
from edgewise import Circuit, EdgeScores, Graph, InputError, Ranking
from edgewise.io.arrays import read_arrays
import edgewise.results, torch
held = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
resource.setrlimit(resource.RLIMIT_AS, (held + 700 * 2**20,) * 2)
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
READ = {"circuit": Circuit.load, "scores": EdgeScores.load, "ranking": Ranking.load,
        "arrays": lambda path: read_arrays(Path(path), {"a": ("f", (None,))})}
for line in sys.stdin:
    kind, path = line.split()
    started = time.process_time()
    try:
        READ[kind](path)
        print("read", path)
    except InputError as error:
        print("memory" if "more memory" in str(error) else "refused", path)
    assert time.process_time() - started < 20, path  # not a speed: what the files claim would take minutes
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 400 * 1024
"""


def bombs(folder):
    """Small files that say that they are large: (reader, path)."""
    for layers, heads in ((20_000, 1), (1000, 30), (10**9, 1), (1, 10**9), (10**12, 10**12)):
        path = folder / f"{layers}-{heads}.json"
        cfg = {"n_layers": layers, "n_heads": heads, "d_model": 1}
        path.write_text(json.dumps({"cfg": cfg, "nodes": {}, "edges": {}}))
        yield "circuit", path
        scores = folder / f"scores-{layers}-{heads}"
        scores.mkdir()
        fill_folder(scores, EdgeScores(GRAPH, np.ones((1, GRAPH.n_edges))))
        about = json.loads((scores / "scores.json").read_text())
        about["graph"].update(cfg)
        (scores / "scores.json").write_text(json.dumps(about))
        yield "scores", scores
        ranking = folder / f"ranking-{layers}-{heads}"
        ranking.mkdir()
        about = {"format": "edgewise-ranking", "version": 1, "graph": {**cfg, "parallel": True}, "signed": True}
        (ranking / "ranking.json").write_text(json.dumps(about | {"origin": {}}))
        (ranking / "ranking.npy").write_bytes(npy(shape="(1, 6)"))
        yield "ranking", ranking
    path = folder / "zeros.npz"
    with (
        zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive,
        archive.open("a.npy", "w", force_zip64=True) as file,
    ):
        file.write(npy(shape=f"({2**26},)", data=0))
        for _ in range(32):
            file.write(bytes(2**24))
    yield "arrays", path
    content = bytearray(path.read_bytes())
    entry = content.rfind(b"PK\x01\x02")
    content[entry + 24 : entry + 28] = struct.pack("<I", 496)  # the size of the array, which the directory understates
    (folder / "understated.npz").write_bytes(content)
    yield "arrays", folder / "understated.npz"
    with zipfile.ZipFile(folder / "overstated.npz", "w") as archive:
        archive.writestr("a.npy", npy(shape=f"({2**28},)"))
    yield "arrays", folder / "overstated.npz"
    matrix = torch.zeros(1).expand(20_000, 20_000)
    cfg = {"n_layers": 100, "n_heads": 100, "d_model": 1}
    held = {"cfg": cfg, "src_nodes": [], "dst_nodes": [], "edges_in_graph": matrix, "nodes_in_graph": matrix[0]}
    torch.save(held, folder / "stride.pt")
    torch.save(held, folder / "legacy.pt", _use_new_zipfile_serialization=False)
    with zipfile.ZipFile(folder / "deflated.pt", "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        archive.writestr("a/data.pkl", Raw(length=2**26, shape=(2**26,)).pickled())
        with archive.open("a/data/0", "w", force_zip64=True) as file:
            for _ in range(16):
                file.write(bytes(2**24))
    doubling = b"(K\x01q\x00" + b"".join(b"(h%ch%ctq%c" % (i, i, i + 1) for i in range(60)) + b"t."
    text = b"]q\x00(X\xe8\x03\x00\x00" + b"a" * 1000 + b"q\x01" + b"h\x01" * 10**6 + b"e."
    for name, code in {"doubling": doubling, "text": text, "memo": b"]r\xff\xff\xff\xff."}.items():
        (folder / name).mkdir()
        stored(folder / name, b"\x80\x02}(X\x03\x00\x00\x00cfg" + code[:-1] + b"u.")
        yield "circuit", folder / name / "file.pt"
    yield from (("circuit", folder / f"{name}.pt") for name in ("stride", "legacy", "deflated"))


def test_small_files_take_little_memory(tmp_path):
    given_ = list(bombs(tmp_path))
    assert max(path.stat().st_size for _, path in given_) < 3 * 2**20
    done = subprocess.run(
        [sys.executable, "-c", LIMITED],
        input="".join(f"{kind} {path}\n" for kind, path in given_),
        capture_output=True,
        text=True,
        env=os.environ | {"OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr[-2000:]
    assert done.stdout.splitlines() == [f"refused {path}" for _, path in given_]


def test_graph_counts_are_whole_numbers_in_range():
    assert Graph(126, 128, 16384).blocks[-1].stop == Graph(126, 128, 16384).n_edges > 390_000_000  # Llama 405B
    assert Graph(np.int64(2), 2, 6) == GRAPH and type(Graph(np.int64(2), 2, 6).n_layers) is int
    for wrong in (True, 2.0, "2", None, [2], 0, -1, 10**9, 10**5000):
        for place in range(3):
            shape = [2, 2, 6]
            shape[place] = wrong
            if place == 2 and wrong == 10**9:
                continue
            with pytest.raises(InputError, match=r"graph|larger"):
                Graph(*shape)
    for wrong in (0, 1, "false", None):
        with pytest.raises(InputError, match="parallel"):
            Graph(2, 2, 6, wrong)


@pytest.mark.parametrize("graph", [Graph(1, 1, 1), Graph(3, 2, 4), Graph(4, 5, 8, parallel=True), GRAPH], ids=str)
def test_edge_counts_and_indices_match_the_list_of_edges(graph):
    assert graph.n_edges == graph.blocks[-1].stop == len(graph.edge_names)
    source, destination = (part.ravel() for part in np.mgrid[-1 : graph.n_sources, -1 : graph.n_destinations])
    found = graph.edges_between(source, destination)
    known = {
        (u, v): at
        for at, (u, v) in enumerate(zip(graph.edge_source.tolist(), graph.edge_destination.tolist(), strict=True))
    }
    assert found.tolist() == [known.get(pair, -1) for pair in zip(source.tolist(), destination.tolist(), strict=True)]
