"""Compare the portfolio of every run with the best single recipe of that run, on test examples.

    for task in ioi mcqa greater-than; do edgewise run --task $task --out results/cells/$task; done
    python benchmarks/portfolios.py results/cells/*

The portfolio was chosen on validation examples. The best single recipe is the one with the best area on test, so it has
an advantage: it was chosen on the examples that it is measured on. Prints a row per run and measure.
"""

from __future__ import annotations

import sys
from pathlib import Path

from edgewise import CMD, CPR, read_result
from edgewise.recipes.recipe import PORTFOLIO


def main() -> None:
    """Print the table, and the number of cells in which the portfolio is significantly worse."""
    print("| run | measure | best single recipe | its area | portfolio | portfolio minus best |")
    print("|---|---|---|---:|---:|---:|")
    n_cells = n_worse = 0
    for folder in map(Path, sys.argv[1:]):
        discovery = read_result(folder)
        for measure in (CMD, CPR):
            outcomes = {outcome.name: outcome for outcome in discovery.of(measure)}
            if (portfolio := outcomes.pop(PORTFOLIO, None)) is None:
                continue
            best = max(outcomes.values(), key=lambda outcome: outcome.measure.better * outcome.area)
            less = portfolio.resampled.minus(best.resampled)
            n_cells, n_worse = n_cells + 1, n_worse + less.is_worse
            print(
                f"| {folder.name} | {measure.name} | {best.name} | {best.area:.4f} | {portfolio.area:.4f} | "
                f"{less.verdict} {less.difference:+.4f} [{less.low:+.4f}, {less.high:+.4f}] |"
            )
    print(f"\n{n_cells} cells; the portfolio is significantly worse than the best single recipe in {n_worse}.")


if __name__ == "__main__":
    main()
