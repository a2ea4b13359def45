"""How sure a number is: intervals, corrections and survival curves."""
