"""Independence: without the circuit, does the model's metric still depend on what it was?"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from .comparisons import ROUNDING
from .verification import FAILS, PASSES, TOO_FEW, CircuitTest, VerifySettings

FloatArray = NDArray[np.float64]
MIN_EXAMPLES = 5


def hsic(x: FloatArray, y: FloatArray, width_x: float | None = None, width_y: float | None = None) -> float:
    """Return the Hilbert-Schmidt independence criterion of paired numbers, with Gaussian kernels.

    Parameters
    ----------
    x, y
        [example] Paired numbers.
    width_x, width_y
        Standard deviations of the kernels; by default the median distance of two examples.

    Returns
    -------
    tr(K H L H) / (n - 1)^2, where H centres
    """
    return float((_centred(_kernel(x, width_x)) * _kernel(y, width_y)).sum() / (len(x) - 1) ** 2)


def permutation_p(x: FloatArray, y: FloatArray, permutations: int, seed: int) -> tuple[float, float]:
    """Return the criterion, and the share of permutations of `y` whose criterion is as large; the data count as one."""
    if len(x) < 2:
        return 0.0, 1.0
    rng = np.random.default_rng(seed)
    centred, kernel = _centred(_kernel(x, None)), _kernel(y, None)
    observed = (centred * kernel).sum()
    as_large = 0
    for _ in range(permutations):
        order = rng.permutation(len(y))
        as_large += bool((centred * kernel[np.ix_(order, order)]).sum() >= observed * (1 - 1e-12))
    return float(observed / (len(x) - 1) ** 2), (1 + as_large) / (1 + permutations)


def independence(without: FloatArray, model: FloatArray, empty: FloatArray, settings: VerifySettings) -> CircuitTest:
    """Test whether the metric of the model without the circuit is independent of the model's.

    without, model, empty  [example] the metric of the model without the circuit, of the model, of the empty circuit

    The circuit passes if independence is not rejected, so few examples make it easier to pass. The detail `empty_p` is
    the p-value for the empty circuit: if it is small, the metric of the corrupted prompts depends on that of the clean
    ones, and no circuit can be expected to pass. Nothing depends on a metric that is the same on all examples, as kl
    of the model is: the verdict is 'too few' then.
    """
    statistic, p = permutation_p(without, model, settings.permutations, settings.seed)
    n = len(model)
    is_constant = n > 1 and np.ptp(model) <= ROUNDING * abs(model.mean() - empty.mean())
    is_few = n < MIN_EXAMPLES or settings.permutations + 1 < 1 / settings.alpha or is_constant
    few = f"needs at least {MIN_EXAMPLES} examples and {round(1 / settings.alpha) - 1} permutations"
    few = "needs examples on which the model's metric differs; it is the same on all" if is_constant else few
    _, empty_p = permutation_p(empty, model, settings.permutations, settings.seed)
    is_shared = p <= settings.alpha and empty_p <= settings.alpha
    shared = "the empty circuit fails too: with this ablation, the prompts themselves are dependent"
    return CircuitTest(
        name="independence",
        null="Without the circuit, the model's metric on an example does not depend on the intact model's.",
        measured="HSIC",
        statistic=statistic,
        p=p,
        verdict=TOO_FEW if is_few else FAILS if p <= settings.alpha else PASSES,
        advice=few if is_few else shared if is_shared else "",
        details={"examples": n, "permutations": settings.permutations, "empty_p": empty_p},
    )


def _kernel(values: FloatArray, width: float | None) -> FloatArray:
    distances = np.abs(values[:, None] - values)
    if width is None:
        width = float(np.median(distances[np.triu_indices(len(values), 1)])) or float(distances.max()) or 1.0
    return np.exp(-((distances / width) ** 2) / 2)


def _centred(kernel: FloatArray) -> FloatArray:
    return kernel - kernel.mean(0) - kernel.mean(1)[:, None] + kernel.mean()
