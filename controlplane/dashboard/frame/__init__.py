"""What every page stands on: who is signed in, navigation, charts, words for values, pages that tell problems."""
