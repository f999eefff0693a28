"""docs/performance.md and its pictures, written from the JSON of a run and from the words in docs/performance/notes.

Nothing here measures. `python -m tests.bench.report` keeps the newest run, without its samples, and writes the page.
"""
