"""What a KV format costs in quality, measured on a model's own text through the real paged ops; and calibration.

`command.py` and `calibrating.py` are the commands. `suite.py` measures: `reading.py` reads documents through pages,
`injection.py` makes keys awkward without changing what the model computes, `metrics.py` compares, `needle.py` looks for
near-duplicates, `hits.py` asks whether a prefix hit equals a miss. `gates.py` judges, `artefact.py` is what the fleet
reads, `report.py` and `plots.py` are for people. `observing.py` finds scales and key means.
"""
