"""From the texts of a corpus to a prepared folder."""
