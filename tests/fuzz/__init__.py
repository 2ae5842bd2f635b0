"""Fuzz tests: every reader gets valid files with random changes, and a few handcrafted attacks.

`make test` reads a few hundred inputs, `make fuzz` 100,000 of the same kinds.
"""
