"""The studio: a local page on which sets are played with, and what the library makes of them is seen live.

    server.py        a free port on this machine, the browser, Ctrl-C
    application.py   the rooms together as one application: page, files, errors
    guard.py         who may ask, and how much
    gesture.py       what makes a newer question replace an older one
    pictures.py      pictures for the page
    told.py          what rooms ask and tell alike
    read_once.py     data, read when it is first needed
    lane.py          one thread that works through what is asked of it
    rooms/           one folder for each room: its routes, its section of the page, its script, its style
    static/          what the rooms share: the frame, the design, the charting library

Everything is computed by the library from shipped weights; nothing leaves the machine. Needs the extra ``studio``.
"""
