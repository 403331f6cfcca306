"""A live view of tables and searches in a browser: ``python -m ablations dashboard``.

In: directories, whose files it reads and never writes. Out: pages that a server on this machine
renders, and an event whenever something has changed. Built on Starlette with server-sent events
rather than on Panel or NiceGUI: all that happens is text and figures from the server to the page,
for which one connection is enough that the browser restores by itself, and no session is kept, so
that any number of viewers share one reading of the files.
"""
