"""Table 3 on Tatoeba, a part of Europarl, and news.

The news are the test sets of 2008 to 2012. All text is in the folder ``news`` of the working
directory, as ``train-tatoeba.en.xz``, ``train-newstest2009.de.xz`` and so on; ``valid`` is
newstest2013, ``test`` newstest2014. That is 203,972 pairs, about as many as ``medium`` has of News
Commentary, so its recipe is used, with the steps of 20 epochs.
"""

from dataclasses import replace

from ablations.tables.scales import MEDIUM
from ablations.tables.table3 import TABLE as TABLE3
from transformer import folder_corpus

NEWS = replace(MEDIUM, name="news", corpus=folder_corpus("news"), max_steps=11_000)
TABLE = replace(TABLE3, name="table3-news", scales=(NEWS,))
