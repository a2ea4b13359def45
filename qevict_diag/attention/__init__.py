"""How a layer attends: its specification, the one formula of its logits, rotary embedding, and sums over rows."""
