"""Area apf: claims while API priority and fairness rejects requests (KEP-5004, KEP-4381)."""
