"""A profile of this machine: every method in processes of its own, in random order, and the tables made of it."""
