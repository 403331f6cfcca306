"""What a table will cost before it is run: hours, FLOPs, memory and disk, for ``ablations plan``.

A table's plan and the name of a device enter, an ``Estimate`` leaves. ``timing`` also tells
``status`` how long unfinished runs will take.
"""
