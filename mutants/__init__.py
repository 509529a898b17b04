"""Proof that the checks can fail: drivers with one seeded fault each, and what each must break."""
