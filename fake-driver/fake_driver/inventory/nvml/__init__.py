"""The `nvml` inventory: the NVIDIA GPUs of this machine, as NVML (through pynvml) and sysfs show them."""
