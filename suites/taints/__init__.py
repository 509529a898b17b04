"""Area taints: devices that are kept from pods, or taken from them (KEP-5055)."""
