"""The studio: a local web page that runs set networks interactively and shows their predictions.

    server.py        opens the port and the browser, runs until Ctrl-C
    application.py   the FastAPI application: page, static files, security checks, error responses
    background.py    worker threads with job queues, and data that is loaded on first use
    schemas.py       request and response types that the rooms share
    pictures.py      PNG images and attention maps
    rooms/           one folder per room: its routes, its section of the page, its script, its style sheet
    static/          files that the rooms share: page frame, design, charting library
    weights/         the networks that the rooms show

All predictions are computed on this machine; no request leaves it. Requires the extra ``studio``.
"""
