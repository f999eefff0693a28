"""Mutations of product code, run against the tests that cover them: does a suite notice what another one noticed?

A mutation changes one place of a function's body. `draw` picks places from coverage data by a fixed seed, `run` runs
the covering tests of one checkout against each, `compare` says where two suites differ. It is no part of CI.

Why no library: mutmut and cosmic-ray run a fixed command for each mutation. Here a mutation is run against the test
files that cover its line, cheapest first, which is what makes sixty of them affordable for a suite of half an hour.
"""
