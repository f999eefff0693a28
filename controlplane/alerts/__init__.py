"""Alert rules, their evaluation, their history and their webhooks.

Start with `evaluating.py`: each round reads what `measuring.py` measures and lets `evaluate.py` decide.
`definitions.py` lists the metrics and the built-in rules, `services.py` has the actions of users, `telling.py` and
`delivery.py` send webhooks, and `anchoring.py` anchors the audit trail.
"""
