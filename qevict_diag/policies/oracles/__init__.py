"""Rankings that know the recorded future: bounds for all others."""
