"""Area core: what claims are promised whatever they ask for (KEP-4381)."""
