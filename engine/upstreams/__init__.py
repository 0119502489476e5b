"""Where answers come from. Each upstream opens an async context manager over bursts (`engine.turn.Upstream`)."""
