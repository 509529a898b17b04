"""What every room uses: errors, results, events, waiting, Kubernetes access."""
