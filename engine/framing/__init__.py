"""Sans-I/O framings: bytes in, frames out."""
