"""Tables of numbers from CSV, Parquet and NPY files, and the sets that their rows form."""
