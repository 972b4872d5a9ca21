"""One module per cloud behind one contract (base.py, errors.py), imported lazily by name."""
