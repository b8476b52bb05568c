"""The encoder, with or without a bank, as files for another run time, after a parity check against float32."""
