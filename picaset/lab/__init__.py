"""The experiments of the paper: data, networks, tasks, training, experiments and reports.

The library does not import from here; only the studio and the command line do.
"""
