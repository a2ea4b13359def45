"""The replay: one loop for all policies over a stream of attention masses."""
