"""What every page stands on: who is signed in, navigation, charts, words for values, pages that tell problems.

Reading starts at `pages.py`: who acts, and what refuses them. In every package of the dashboard modules that end in
`rows`, `words` or `facts` are pure: they make what a page shows.
"""
