"""Access to the API server, small enough to start in no time."""
