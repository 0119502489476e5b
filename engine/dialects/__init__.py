"""The vendors' languages as pure functions: requests and streams in and out, errors. No socket, no clock, no await."""
