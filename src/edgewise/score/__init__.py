"""Scoring: how much does corrupting each edge hurt? One file per attribution method, one verb."""

from .verb import METHODS, check_scoring, score_edges

__all__ = ["METHODS", "check_scoring", "score_edges"]
