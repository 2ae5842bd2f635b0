"""Evaluation: run circuits, and measure how faithful they are. `curve` and `roc` need NumPy only."""
