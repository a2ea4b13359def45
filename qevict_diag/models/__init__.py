"""Models: where they come from, how they are loaded, and how their attention is watched and stepped."""
