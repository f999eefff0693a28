"""What engines counted: taken in exactly once, added up over windows, priced, compared with what engines say.

Minutes are the truth, and everything else adds up to them. `ingest.py` takes reports in, in the transaction that also
stores how far an agent was read; `rolling.py` and `retention.py` make sums of minutes and drop old ones;
`selectors.py`, `sums.py` and `snapshot.py` read a window, all of one moment. `stats.py`, where reading starts,
`prices.py`, `invoices.py` and `whatif.py` answer; `windows.py`, `percentiles.py`, `money.py` and `foretelling.py`
compute and read nothing. `reconciling.py` compares what engines, reports, minutes and sums say.
"""
