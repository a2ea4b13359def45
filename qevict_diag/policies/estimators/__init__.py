"""Importance estimators, one file each; they don't know each other."""
