"""Scoring: how much does corrupting each edge hurt? One file per attribution method, one verb."""

from .verb import METHODS, score_edges

__all__ = ["METHODS", "score_edges"]
