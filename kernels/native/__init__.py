"""Ops in C for a CPU, built with the system's compiler where there is one. Without one torch does the same, slower."""
