"""Control planes that break one promise each, by area: modules with a tuple `MUTANTS`."""
