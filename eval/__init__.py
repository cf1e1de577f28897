"""Count-first voting over predictions, the three ARC scores, and sigma over seeds.

Knows data and predictions only: no model, no torch, so any solver can be scored with it.
"""
