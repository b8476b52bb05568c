"""What runs on a small device: exports with a parity gate, and honest profiles."""
