"""The tests of circuits agree with blei-lab/circuitry where the definitions do: see tools/make_circuitry_fixture.py."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from edgewise.verify import VerifySettings, hsic
from edgewise.verify.circuit_tests import distance, minimality, necessity, sufficiency

SETTINGS = VerifySettings()


@pytest.fixture(scope="module")
def peer():
    with np.load(Path(__file__).with_name("data") / "circuitry" / "statistics.npz") as file:
        return dict(file)


def test_sufficiency(peer):
    own, random = (distance(peer[name], peer["full"], 1.0) for name in ("circuit", "random"))
    test = sufficiency(float(own[0]), random, SETTINGS)
    assert test.statistic == peer["sufficiency_share"]
    np.testing.assert_allclose(test.p, peer["sufficiency_p"], rtol=1e-9)


def test_necessity(peer):
    own, random = (distance(peer[name], peer["full"], 1.0) for name in ("complement", "random_complement"))
    test = necessity(float(own[0]), random, SETTINGS)
    assert test.statistic == peer["partial_necessity_share"]
    np.testing.assert_allclose(test.p, peer["partial_necessity_p"], rtol=1e-9)


def test_minimality(peer):
    changes = distance(peer["circuit"][0], peer["without_edge"], 1.0)
    random = distance(peer["with_path"], peer["without_path_edge"], 1.0)
    names = [str(edge) for edge in range(len(changes))]
    rows = minimality(changes, random, names, SETTINGS).details["edges"]
    np.testing.assert_array_equal([row["share"] for row in rows], peer["minimality_share"])
    np.testing.assert_allclose([row["p"] for row in rows], peer["minimality_p"], rtol=1e-9)


def test_hsic_with_the_same_width_for_both(peer):
    x, y = peer["full"], peer["complement"][0]
    for width, expected in zip(peer["hsic_width"], peer["hsic"], strict=True):
        np.testing.assert_allclose(hsic(x, y, width, width), expected, rtol=1e-4, atol=1e-7)
    width = peer["hsic_width"][0]
    permuted = [hsic(x, y[order], width, width) for order in peer["hsic_order"]]
    np.testing.assert_allclose(permuted, peer["hsic_permuted"], rtol=1e-3, atol=1e-6)
