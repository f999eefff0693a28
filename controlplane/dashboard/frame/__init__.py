"""Code shared by all pages: the signed-in user, navigation, charts, formatting, error pages.

Start reading at `pages.py`, which finds the acting user and turns refusals into pages. In every package of the
dashboard, modules named `*rows`, `*words` or `*facts` are pure: they compute what a page shows.
"""
