"""Area quota: how devices are charged to the resource quotas of a namespace (KEP-4381, KEP-5004)."""
