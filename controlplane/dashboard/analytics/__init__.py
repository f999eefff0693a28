"""The analytics of one organisation: hit rate, savings and their parts."""
