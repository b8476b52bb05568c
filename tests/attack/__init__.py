"""The attack: everything that goes wrong on a factory floor or is done on purpose, tried on a small store.

One module an attack (kills, faults, files, flips, hostile, concurrency, memory, output, outside), each a list of
numbered cases that depend on nothing but a seed. The product is used through its command line and its public API
alone. The tests in this folder run a few cases of each; ``scripts/attack.py`` (``make attack``) runs all. See
docs/robustness.md.

To read the code, begin with :mod:`~attack.arena` (where it happens), then :mod:`~attack.server` (how a child is made
that may be killed, hang or crash) and any of the attacks.
"""
