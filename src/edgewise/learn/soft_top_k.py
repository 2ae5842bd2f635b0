"""A soft choice of k edges: weights between 0 and 1 that sum to k, and which parameters to move to change them."""

from __future__ import annotations

import torch
from torch import Tensor

BISECTIONS = 50


def soft_top_k(theta: Tensor, k: float, temperature: float = 1.0) -> Tensor:
    """[edge] sigmoid((theta - t) / temperature), with t such that the weights sum to k; differentiable through t."""
    with torch.no_grad():
        low, high = theta.min() - 20 * temperature, theta.max() + 20 * temperature
        for _ in range(BISECTIONS):
            middle = (low + high) / 2
            if torch.sigmoid((theta - middle) / temperature).sum() > k:
                low = middle
            else:
                high = middle
        threshold = (low + high) / 2
        weights = torch.sigmoid((theta - threshold) / temperature)
        slope = (weights * (1 - weights) / temperature).sum()
    # One Newton step at the solution moves it by next to nothing, but carries how t depends on theta.
    threshold = threshold + (torch.sigmoid((theta - threshold) / temperature).sum() - k) / slope
    return torch.sigmoid((theta - threshold) / temperature)


def hard_top_k(theta: Tensor, k: int) -> Tensor:
    """[edge] 1 for the k largest, 0 for the others; of equals the first."""
    chosen = torch.argsort(theta, descending=True, stable=True)[:k]
    return torch.zeros_like(theta).index_fill_(0, chosen, 1.0)
