"""Tables with scales of their own, without committed results."""
