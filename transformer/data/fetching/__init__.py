"""From a declared ``TextFile`` to a verified local file.

``fetch`` decides where a text comes from: a download, a member of an archive, a test set of
sacreBLEU, a generator, or a path of the user's. Everything fetched is kept in the cache.
"""
