"""A Docker daemon and a node image of our own, so that kind runs on machines without a registry."""
