"""Ring 3: real sockets on 127.0.0.1, where the kernel's buffers, FINs and resets have the last word."""
