"""Record the attention of a decoder model, replay KV-cache policies against it, and measure what they discard."""
