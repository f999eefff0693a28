"""Measure the quality loss of KV formats on a model's own text through the real paged ops; and calibrate scales.

`command.py` and `calibrating.py` are the commands. `suite.py` measures: `reading.py` reads documents through pages,
`injection.py` makes keys harder without changing the model's results, `metrics.py` compares, `needle.py` retrieves
near-duplicates, `hits.py` checks that a prefix hit equals a miss. `gates.py` judges, the fleet reads `artefact.py`, and
`report.py` and `plots.py` are for people. `observing.py` finds scales and key means.
"""
