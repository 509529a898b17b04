"""The control endpoint: change and observe the driver while it runs."""
