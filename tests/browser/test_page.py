"""The page opens from disk."""

from __future__ import annotations


def test_it_opens(open_page, tmp_path):
    from edgewise import Circuit, Graph
    from edgewise.report.view import view_of
    from edgewise.report.view_page import page_of

    Circuit.full(Graph(1, 2, 4)).save(tmp_path / "all.json")
    (tmp_path / "page.html").write_text(page_of(view_of([tmp_path / "all.json"])), "utf-8")
    assert "all" in open_page(tmp_path / "page.html").title()
