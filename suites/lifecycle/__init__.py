"""Area lifecycle: devices are prepared and unprepared, drivers and kubelets come and go (KEP-4381)."""
