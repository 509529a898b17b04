"""Provider local: real Kubernetes as plain processes on this machine."""
