"""A task's memory: the bank in memory (``bank``), in files (``bank_files``), how it is learned (``building``) and kept
small (``budget``), the verdict it gives (``verdict``), and all the banks of a store (``bank_set``)."""
