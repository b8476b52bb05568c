"""What several methods use: torch helpers, state files, the memory of feature vectors, the plain ViT, precision."""
