"""From a declared corpus to batches.

``corpora`` declares texts, ``fetch`` gets them, ``prepare`` cleans and encodes them with a shared
``vocabulary`` into a folder (``prepared``) whose ``store`` is memory-mapped. ``buckets`` and
``batches`` plan the batches, which the DataModule in ``module`` yields.
"""
