"""Area numa: where a device is in its machine, by NUMA node and PCIe root (KEP-6072)."""
