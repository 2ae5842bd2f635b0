"""Values that the stages hand to each other: circuits, scores, statistics, rankings. No torch."""
