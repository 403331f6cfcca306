"""From the texts of a corpus to a folder that training and evaluation read."""
