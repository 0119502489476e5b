"""Sockets and HTTP/1.1, on Trio. No dialect is known here: bodies are bytes."""
