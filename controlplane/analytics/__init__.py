"""Usage: engines' counts stored exactly once, summed over windows, priced, forecast and reconciled.

Rows of minutes are the truth, and everything else sums them. `ingest.py` stores reports in the transaction that also
stores how far each agent's spool was read. `rolling.py` rolls minutes up and `retention.py` drops old ones.
`selectors.py` and `sums.py` read a window, all of it at one moment. Start with `stats.py`; `prices.py`, `invoices.py`
and `whatif.py` answer requests too. `windows.py`, `percentiles.py`, `money.py` and `foretelling.py` compute and read
nothing. `reconciling.py` compares the counts of engines, reports, minutes and sums.
"""
