"""Ring 1: what needs no clock and no socket, fed with bytes and values."""
