"""The command line: one file a verb group; parses, calls, prints."""
