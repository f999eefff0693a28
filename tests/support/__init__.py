"""Small helpers of any test: ports, files, names of cases, the command."""
