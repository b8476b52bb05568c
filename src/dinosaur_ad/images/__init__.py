"""Images: found, opened, decoded ahead of their use, prepared for an encoder, and drawn with a verdict."""
