"""Area metadata: what containers can read about their devices (KEP-5304)."""
