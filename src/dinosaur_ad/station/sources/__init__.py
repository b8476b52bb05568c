"""Where pictures come from: folders, uploads, cameras, videos. One file a kind; :mod:`.source` has what they share."""
