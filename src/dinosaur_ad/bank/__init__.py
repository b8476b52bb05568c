"""A task's memory: how it is learned, kept small and asked (``bank``), and all the banks of a store (``banks``)."""
