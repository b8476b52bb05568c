"""What several methods are built of: the training loop, the plain ViT, the flat memory."""
