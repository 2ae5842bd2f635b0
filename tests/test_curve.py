"""Faithfulness, CPR, CMD, AUROC."""

import numpy as np
import pytest

from edgewise import Circuit, Graph, InputError
from edgewise.evaluate import SIZES, Curve, MibFaithfulness, RatioFaithfulness
from edgewise.evaluate.curve import areas, faithfulness, size_to_edges
from edgewise.evaluate.known import auroc

MIB, RATIO = MibFaithfulness(), RatioFaithfulness()


def curve(values, full=2.0, empty=-1.0, definition=MIB, shares=SIZES):
    values = np.asarray(values, float)[:, None]
    counts = tuple(range(len(shares)))
    return Curve(shares, counts, counts, values, np.array([full]), np.array([empty]), definition)


def test_areas_of_a_perfect_curve():
    perfect = curve(np.full(10, 2.0))
    assert perfect.cmd == 0 and perfect.cpr == pytest.approx(0.999)


def test_areas_by_hand():
    steps = curve([-1.0, 2.0, 5.0], shares=(0.0, 0.5, 1.0))
    np.testing.assert_allclose(steps.faithfulness, [0, 1, 2])
    assert steps.cpr == pytest.approx(0.25 + 0.75)
    assert steps.cmd == pytest.approx(0.25 + 0.25)


def test_areas_equal_mibs_loop():
    values = np.random.default_rng(0).normal(0.7, 0.5, 10)
    result = curve(values, full=1.0, empty=0.0)
    under = distance = 0.0
    for a, b, x, y in zip(SIZES, SIZES[1:], values, values[1:], strict=False):
        under += (b - a) * (x + y) / 2
        distance += (b - a) * (abs(1 - x) + abs(1 - y)) / 2
    assert (result.cpr, result.cmd) == (pytest.approx(under), pytest.approx(distance))


def test_definitions_agree_at_the_full_model_and_differ_elsewhere():
    assert faithfulness([2.0, -1.0, 0.5], 2.0, -1.0, MIB).tolist() == [1, 0, 0.5]
    assert faithfulness([2.0, -1.0, 0.5], 2.0, -1.0, RATIO).tolist() == [1, -0.5, 0.25]


@pytest.mark.parametrize("full, empty, definition", [(2.0, 2.0, MIB), (0.0, 2.0, RATIO)])
def test_undefined_faithfulness_raises(full, empty, definition):
    with pytest.raises(InputError, match="undefined"):
        faithfulness([1.0], full, empty, definition)


def test_sizes_of_a_curve_must_increase():
    with pytest.raises(InputError, match="increase"):
        curve([1, 2], shares=(0.5, 0.5))


def test_sizes_round_down_as_in_mib():
    assert [size_to_edges(p, 32491) for p in SIZES] == [32, 64, 162, 324, 649, 1624, 3249, 6498, 16245, 32491]
    with pytest.raises(InputError, match="from 0 to 1"):
        size_to_edges(1.5, 10)


def test_area_of_one_point_is_0():
    assert areas([0.5], [3.0]) == 0


def test_auroc_is_the_share_of_pairs_in_order():
    graph = Graph(1, 1, 2)
    rng = np.random.default_rng(0)
    score = rng.integers(0, 4, graph.n_edges).astype(float)
    truth = Circuit(graph, rng.random(graph.n_edges) < 0.4)
    inside, outside = score[truth.mask], score[~truth.mask]
    pairs = np.mean((inside[:, None] > outside) + 0.5 * (inside[:, None] == outside))
    assert auroc(score, truth) == pytest.approx(pairs)
    with pytest.raises(InputError, match="lack some"):
        auroc(score, Circuit.full(graph))
