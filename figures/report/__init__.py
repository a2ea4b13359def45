"""The report: one self-contained page, and everything that is written beside it."""
