"""Fuzz tests: every reader gets valid files with random changes, and a few handcrafted attacks.

Small in `make test` (test_readers.py), large in `make fuzz` (__main__.py); both draw from the same strategies.
"""

from __future__ import annotations

import os

# Before torch and transformers are imported: one thread of arithmetic, and no word to the hub.
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ.setdefault("HF_HUB_OFFLINE", "1")
