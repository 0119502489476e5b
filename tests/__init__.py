"""The tests, in four rings: pure, lockstep streams with virtual time, loopback, real clients and servers."""
