"""Quantizers: from windows to packed codes and back."""
