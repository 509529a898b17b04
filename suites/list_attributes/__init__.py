"""Area list-attributes: device attributes that hold a list of values (KEP-5491)."""
