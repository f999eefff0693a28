"""`make bench-gpu`: every Triton kernel compiled, checked against its reference and timed, on the GPU that is here."""
