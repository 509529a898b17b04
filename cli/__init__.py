"""The command line: the one room that knows all the others."""
