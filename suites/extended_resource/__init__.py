"""Area extended-resource: pods that ask for devices by an extended resource name (KEP-5004)."""
