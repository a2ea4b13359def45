"""From traces to tidy rows: measurements, decisions and bytes."""
