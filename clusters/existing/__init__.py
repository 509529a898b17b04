"""Provider `existing`: a cluster that somebody else made, known by a kubeconfig alone."""
