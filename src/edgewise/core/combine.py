"""Combine several rankings of the same edges into one."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ..errors import InputError
from .ranking import Ranking
from .statistics import tied_ranks

HOW = ("ranks", "values")


def combine_rankings(
    rankings: Sequence[Ranking],
    how: str = "ranks",
    weights: Sequence[float] | None = None,
    rank: str | None = None,
) -> Ranking:
    """Return the weighted mean of several rankings.

    Parameters
    ----------
    rankings
        Of the same graph.
    how
        'ranks': the mean of sign(value) times the rank of |value|, from 1 / edges for the smallest to 1; tied values
        share their mean rank. 'values': the mean of the values, each ranking divided by its root mean square.
    weights
        One per ranking, at least 0; only their ratios matter. By default all are equal.
    rank
        'absolute' combines absolute values, as CMD wants; the result has no signs. 'signed' combines signed values, as
        CPR wants; an edge of a ranking without signs counts as helpful. By default 'signed' if all rankings have signs.

    Returns
    -------
    Ranking
        Without resampled values. An edge is kept if it passed the filter of every ranking that has one.

    Raises
    ------
    InputError
        If there are no rankings, they are of different graphs, or the weights don't fit.

    Examples
    --------
    >>> combine_rankings([summarise(scores).ranking, learned], weights=[1, 2])
    """
    if not rankings or not all(isinstance(ranking, Ranking) for ranking in rankings):
        raise InputError(f"combine_rankings takes at least one Ranking, not {rankings!r}")
    graph = rankings[0].graph
    for place, ranking in enumerate(rankings):
        if ranking.graph != graph:
            raise InputError(
                f"rankings are of different graphs: the first has {graph.n_edges:,} edges ({graph}), number "
                f"{place + 1} has {ranking.graph.n_edges:,} ({ranking.graph}); combine rankings of one model"
            )
    if how not in HOW or rank not in (None, "absolute", "signed"):
        raise InputError(f"how must be {' or '.join(HOW)} and rank absolute or signed, not {how!r} and {rank!r}")
    rank = rank or ("signed" if all(ranking.signed for ranking in rankings) else "absolute")
    shares = np.ones(len(rankings)) if weights is None else np.asarray(weights, np.float64)
    if shares.shape != (len(rankings),) or not np.isfinite(shares).all() or (shares < 0).any() or not shares.any():
        raise InputError(f"{len(rankings)} rankings need as many weights, at least 0 and not all 0, not {weights!r}")
    scaled = []
    for ranking in rankings:
        value = np.abs(ranking.value) if rank == "absolute" else ranking.value
        if how == "ranks":
            scaled.append(np.sign(value) * tied_ranks(np.abs(value)) / len(value))
        else:
            value = value / (np.abs(value).max() or 1.0)  # so that squares neither overflow nor vanish
            scaled.append(value / (np.sqrt((value**2).mean()) or 1.0))
    masks = [ranking.kept for ranking in rankings if ranking.kept is not None]
    method = {"name": "combined", "how": how, "rank": rank, "weights": (shares / shares.sum()).tolist()}
    return Ranking(
        graph,
        shares @ np.stack(scaled) / shares.sum(),
        signed=rank == "signed" and any(ranking.signed for ranking in rankings),
        kept=np.logical_and.reduce(masks) if masks else None,
        origin={"method": method, "rankings": [dict(ranking.origin).get("method") for ranking in rankings]},
    )
