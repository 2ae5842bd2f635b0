"""The page's pure modules, against what Python computes."""

from __future__ import annotations

import random

import pytest

from .sample_views import fixed, number, percent

VALUES = [0.0, 1.0, 0.005, 0.015, 0.125, 0.03125, 0.9995, 9.995, 99.95, 99999.5, 1e5, 9.999e-5, 1e-4, 1e-300]
SAID = "({ number, fixed }, all) => all.map((one) => [number(one), number(one, 2), fixed(one)])"
UNKNOWN = """({ number, fixed, between, counted }) =>
  [number(NaN), fixed(Infinity), between(1, null, null), counted(1, "edge"), counted(1234, "edge")]"""
HEIGHTS = """({ heightRange, heightTicks }, values) => {
  const range = heightRange(values);
  return [range, heightTicks(range)];
}"""
TICKS = "({ shareTicks }, [shares, linear]) => shareTicks(shares, linear)"


def test_numbers_are_formatted_as_in_python(page):
    draw = random.Random(0)
    values = VALUES + [-value for value in VALUES]
    values += [draw.choice((-1, 1)) * draw.random() * 10.0 ** draw.randrange(-7, 7) for _ in range(500)]
    expected = [[number(value), number(value, 2), fixed(value)] for value in values]
    assert page.module("text", SAID, values) == expected
    shares = [draw.random() for _ in range(200)] + [0, 1, 0.05, 1e-4]
    assert page.module("text", "({ percent }, all) => all.map(percent)", shares) == [percent(share) for share in shares]


def test_tokens_are_named_with_their_places(page):
    script = "({ tokenNamed }, tokens) => [...tokens.keys(), 99].map((place) => tokenNamed(tokens, place))"
    assert page.module("text", script, [" Emma", "Emma"]) == ["'Emma' (0)", "'Emma' (1)", "token 99"]


def test_missing_numbers_are_na(page):
    assert page.module("text", UNKNOWN) == ["n/a", "n/a", "1", "1 edge", "1,234 edges"]


@pytest.mark.parametrize("linear", [True, False])
def test_ticks_of_sizes_are_few_round_and_in_range(page, linear):
    draw = random.Random(1)
    for _ in range(50):
        shares = sorted(10 ** draw.uniform(-5, 0) for _ in range(draw.randrange(2, 12)))
        ticks = page.module("plot", TICKS, [shares, linear])
        assert ticks == sorted(set(ticks)) and len(ticks) <= 9
        least = 0 if linear else shares[0]
        assert all(0.999 * least <= tick <= 1.001 * shares[-1] * (1.01 if linear else 1) for tick in ticks)
        if not linear:
            assert all(f"{tick:e}"[0] in "125" and float(f"{tick:e}"[:8]) in (1, 2, 5) for tick in ticks)


def test_scales_map_ends_to_ends(page):
    shares = [0.001, 0.01, 0.1, 0.5, 1]
    script = "({ shareScale }, [shares, linear]) => shares.map(shareScale(shares, linear, 10, 110))"
    linear = page.module("plot", script, [shares, True])
    assert linear == pytest.approx([10 + 100 * share for share in shares])
    logarithmic = page.module("plot", script, [shares, False])
    assert logarithmic[0] == 10 and logarithmic[-1] == pytest.approx(110)
    assert logarithmic[1] - logarithmic[0] == pytest.approx(logarithmic[2] - logarithmic[1])


def test_the_vertical_range_holds_zero_one_and_all_values(page):
    draw = random.Random(2)
    for _ in range(50):
        values = [draw.gauss(0.5, 10 ** draw.uniform(-1, 3)) for _ in range(5)]
        (low, high), ticks = page.module("plot", HEIGHTS, values)
        assert low < min(0, *values) and high > max(1, *values)
        assert 1 <= len(ticks) <= 6 and ticks == sorted(ticks) and low <= ticks[0] and ticks[-1] <= high
        assert len(ticks) >= 2


def test_lines_have_gaps_at_missing_values(page):
    path = page.module("plot", "({ linePath }) => linePath([[0, 1], [1, 2], null, [3, 4], [5, 6]])")
    assert path == "M0.0 1.0L1.0 2.0M3.0 4.0L5.0 6.0"


@pytest.mark.parametrize(
    ("token", "shown"),
    [
        ("word", "word"),
        ("  two", "··two"),
        ("end ", "end·"),
        ("   ", "···"),
        ("a b", "a b"),
        ("\n", "⏎"),
        (" \r\n\t", "·␍⏎⇥"),
        ("\u202eabc", r"\u202eabc"),
        ("\u200b", r"\u200b"),
        ("\ufeffx\u0000", r"\ufeffx\u0000"),
        ("<b>", "<b>"),
        ("", ""),
        ("👩‍🚀", "👩\\u200d🚀"),
    ],
)
def test_tokens_show_blanks_and_escape_control_characters(page, token, shown):
    assert page.module("text", "({ visible }, token) => visible(token)", token) == shown


def test_long_text_is_shortened_in_the_middle(page):
    script = "({ elided }, [words, longest]) => elided(words, longest)"
    assert page.module("text", script, ["short", 5]) == "short"
    assert page.module("text", script, ["abcdefghij", 5]) == "ab…ij"
    assert page.module("text", script, ["😀" * 9, 3]) == "😀…😀"


def test_edge_names_are_those_of_python(page, view):
    names = list(page.places()["curves"])
    assert sorted(names) == sorted(view.graph.edge_names)
