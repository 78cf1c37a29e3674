"""What is known: frozen records that every stage takes and gives; no torch."""
