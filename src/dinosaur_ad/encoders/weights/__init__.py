"""The weights of an encoder: where they come from, how they are checked, and where they are kept."""
