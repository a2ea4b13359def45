"""The cache between two events: windows, tiers, budgets in bytes, routing, and contents in memory."""
