"""Fuzzing: mutated files for everything that reads files. ``make fuzz`` runs it in full, ``make test`` a short part.

    mutations.py    changes of bytes, of JSON values, of headers and of folders, from a seed
    targets.py      what is fuzzed: valid files, and a function that uses them
    runner.py       runs a target, in this process or in workers with a memory limit; counts the outcomes

An input must be accepted or refused by a clear error (``ValueError`` or ``OSError``; exit code 1 of a command) within
five seconds, print no control character, and write nothing outside of its folder. Anything else is a failure; it is
named by its target and its number, from which ``python -m tests.fuzz --target NAME --first NUMBER`` repeats it.
"""
