"""Policies as data: what they rank by, when they decide, and what they may do."""
