"""What the gateway keeps of finished turns, so that the next can continue them.

store.py    the interface, and a turn as a record
book.py     who is kept, for how long and at whose cost: pure, the same for every store
memory.py   as long as the process lives
sqlite.py   in a file
"""
