"""Load: pod churn with Locust, one cause for every intended pod, a verdict that says whether to trust it."""
