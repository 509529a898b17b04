"""Area prioritized-list: requests with alternatives (KEP-4816)."""
