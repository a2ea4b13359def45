"""The texts that are recorded: where they come from and how they are read."""
