"""Tables of numbers in files: CSV, Parquet and NPY."""
