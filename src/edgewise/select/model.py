"""The integer program as arrays, over any subset of the edges."""

from __future__ import annotations

import highspy
import numpy as np
from numpy.typing import NDArray

from .problem import SelectionProblem


def build_model(problem: SelectionProblem, edges: NDArray[np.intp], scale: float = 1.0) -> highspy.HighsLp:
    """Equations 2a-2g over the columns x_e of `edges` and y_v of all nodes, values divided by `scale`.

    Rows: budget; positive edges; an in-edge for every used node but `input`; an out-edge for every used node but
    `logits`; x_e <= y_u and x_e <= y_v, where that node may be unused. `input` and `logits` are always used.
    """
    graph = problem.graph
    n_x, n_y = len(edges), graph.n_nodes
    x = np.arange(n_x)
    tail, head = graph.edge_source[edges].astype(np.int64), graph.edge_head[edges].astype(np.int64)
    inner = np.arange(1, n_y - 1)  # nodes that may be unused
    in_row, out_row = 1 + np.arange(n_y), 1 + n_y + np.arange(n_y)  # row 1 (in-edges of `input`) stays for PNR
    positive = x[problem.is_positive[edges]]
    tail_link, head_link = x[tail > 0], x[head < n_y - 1]
    first_link = 1 + 2 * n_y
    link_rows = first_link + np.arange(len(tail_link) + len(head_link))

    rows = np.concatenate([np.zeros(n_x, int), np.ones(len(positive), int), in_row[head], out_row[tail]])
    columns = np.concatenate([x, positive, x, x])
    signs = np.ones(len(rows))
    y_columns = n_x + np.concatenate([inner, inner, tail[tail_link], head[head_link]])
    y_rows = np.concatenate([in_row[inner], out_row[inner], link_rows])
    rows = np.concatenate([rows, y_rows, link_rows])
    columns = np.concatenate([columns, y_columns, tail_link, head_link])
    signs = np.concatenate([signs, -np.ones(len(y_rows)), np.ones(len(link_rows))])

    lower = np.zeros(first_link + len(link_rows))
    upper = np.full(len(lower), np.inf)
    lower[0], upper[0] = -np.inf, problem.budget
    lower[1] = problem.least_positive
    lower[[in_row[-1], out_row[0]]] = 1  # an in-edge of `logits`, an out-edge of `input`
    lower[first_link:], upper[first_link:] = -np.inf, 0

    lp = highspy.HighsLp()
    lp.num_col_, lp.num_row_ = n_x + n_y, len(lower)
    lp.sense_ = highspy.ObjSense.kMaximize
    lp.col_cost_ = np.concatenate([problem.value[edges] / scale, np.zeros(n_y)])
    lp.col_lower_ = np.concatenate([np.zeros(n_x), np.eye(1, n_y)[0] + np.eye(1, n_y, n_y - 1)[0]])
    lp.col_upper_ = np.ones(n_x + n_y)
    lp.row_lower_, lp.row_upper_ = lower, upper
    by_column = np.lexsort((rows, columns))
    lp.a_matrix_.format_ = highspy.MatrixFormat.kColwise
    lp.a_matrix_.start_ = np.searchsorted(columns[by_column], np.arange(n_x + n_y + 1))
    lp.a_matrix_.index_, lp.a_matrix_.value_ = rows[by_column], signs[by_column]
    lp.integrality_ = [highspy.HighsVarType.kInteger] * (n_x + n_y)
    return lp
