"""Load profiles: what is asked of a cluster, as data."""
