module dra-harness.local/programs

go 1.26.0
