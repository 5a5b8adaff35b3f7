"""Training of draft heads: texts, the target's features, losses, and the loop."""
