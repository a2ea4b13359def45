"""What other packages need to test their policies, metrics and quantizers: random traces, and laws."""
