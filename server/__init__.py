"""The process around the engine: configuration, policy, and the routes of the data plane."""
