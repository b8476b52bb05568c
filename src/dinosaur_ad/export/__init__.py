"""The encoder, with a bank if asked for, as files for another run time; nothing leaves that fails the parity gate."""
