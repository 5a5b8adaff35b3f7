"""Draft vocabularies: which tokens of a target a draft head may propose."""
